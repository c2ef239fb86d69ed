"""Where a call gives another code natively than remotely, and why that is so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A difference of every case that `calls` matches: a symbol, and what is wrong in it."""

    situations: str
    calls: str
    reason: str


KNOWN: tuple[Known, ...] = (
    Known(
        r"with a context",
        r"cuGraphConditionalHandleCreate ctx null",
        "the graph has a value of another context",
    ),
    Known(
        r"with a context",
        r"cuCtxCreate_v3 flags CU_CTX_SCHED_MASK",
        "flags that exclude each other, and an affinity that there is not: which of the two is told",
    ),
    Known(
        r"with a context",
        r"cuMemcpy3DPeer(Async)? pCopy ones",
        "contexts that are none, and offsets that overflow: which of the two is told",
    ),
    Known(
        r"with a context",
        r"cuDeviceGetAttribute dev .*",
        "neither the attribute nor the device is one: which of the two is told",
    ),
    Known(
        r"with a context",
        r"cuGraphAddBatchMemOpNode nodeParams ones",
        "a context that is none, and a batch that is too long: which of the two is told",
    ),
    Known(
        r"with a context",
        r"cuGraphAddMemAllocNode nodeParams ones",
        "a size and a kind of memory that there are not: which of the two is told",
    ),
    Known(
        r"with a context|of a destroyed context|after a reset",
        r"cuGraphExecKernelNodeSetParams(_v2)?( nodeParams ones)?",
        "neither the node nor the function is one of the graph: which of the two is told",
    ),
    Known(
        r"with a context",
        r"cuPointerGetAttribute attribute 5",
        "tokens for GPUDirect RDMA would name the server's memory, which no driver here may map",
    ),
    Known(
        r"without a context",
        r"cuGraphAddMem(cpy|set)Node",
        "remotely the context that is passed suffices, natively one must be current too",
    ),
    Known(
        r"of a destroyed context|after a reset",
        r"cuGraphInstantiateWithFlags|cuGraphExecGet(Flags|Id)|cuGraphExecDestroy",
        "remotely an executable graph ends with the context for which it was made; natively its launch fails",
    ),
    Known(
        r"of a destroyed context|after a reset",
        r"cuGraph(AddNode|NodeSetParams)(_v2|_v3)?",
        "neither the kind of the node nor its function is one: which of the two is told",
    ),
    Known(
        r"of a destroyed context|after a reset",
        r"cuMemFree_v2",
        "an earlier case's allocation has the address: those of the window are used again at once",
    ),
    Known(
        r"after a sticky error",
        r"cuGraph(AddKernelNode|KernelNodeSetParams|AddMemcpyNode|AddMemsetNode|AddNode|NodeSetParams)(_v\d)?",
        "a graph is a description, which the guest takes without asking a context that has failed",
    ),
    Known(
        r"after a sticky error",
        r"cuGraph(Add)?Event(Record|Wait)Node(SetEvent)?",
        "a graph is a description, which the guest takes without asking a context that has failed",
    ),
    Known(
        r"in a capture",
        r"cuMemcpy(DtoA|AtoD|HtoA|AtoH|AtoA)_v2|cuGraphInstantiateWithParams|cuMemFreeHost|cuMemAllocManaged"
        r"|cuMem(Prefetch|Discard|DiscardAndPrefetch)(Batch)?Async(_v2)?|cuStreamAttachMemAsync",
        "what no capture allows, with arguments that are wrong: which of the two is told",
    ),
)
