"""Where a call gives another code natively than remotely, and why that is so as yet."""

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
        r"with a context|in another context|of a destroyed context|after a reset|in a capture",
        r"cuCtx(Create_v3|GetExecAffinity).*",
        "the guest checks arguments before it says that there are no affinities",
    ),
    Known(
        r"with a context|in another context|in a capture",
        r"cuCtxEnablePeerAccess",
        "the devices' own check of peers comes first natively",
    ),
    Known(
        r"with a context|in another context|of a destroyed context|after a reset|in a capture",
        r"cuMemcpy[23]D(Unaligned|Async)?(_v2)?( pCopy (null|zeros)| hStream .*)?",
        "a copy of nothing, between kinds of memory that there are not",
    ),
    Known(
        r"with a context|of a destroyed context|after a reset",
        r"cuMemcpy(Async)?( (dst|src) (beyond|freed))?",
        "an address of nothing is the program's own memory natively",
    ),
    Known(
        r"with a context|of a destroyed context|after a reset",
        r"cuMemcpyPeer(Async)?|cuMemcpy3DPeer(Async)? pCopy ones",
        "which of two wrong arguments is told",
    ),
    Known(
        r"with a context",
        r"cuDeviceGetAttribute dev .*",
        "the guest looks at the attribute first",
    ),
    Known(
        r"with a context",
        r"cu(Func|Kernel)SetAttribute attrib CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER.*",
        "the simulated device has no clusters to require",
    ),
    Known(
        r"after a sticky error",
        r"cuGraph(Add|Exec)?Event(Record|Wait)Node.*",
        "an event that is none is an invalid value in a graph",
    ),
    Known(
        r"with a context",
        r"cuGraphNodeGetDepend(encies|entNodes)_v2 depend.*",
        "edges are asked for and nodes are not",
    ),
    Known(
        r"with a context|of a destroyed context|after a reset",
        r"cuGraphExecKernelNodeSetParams(_v2)?( nodeParams ones)?",
        "which of two wrong arguments is told",
    ),
    Known(
        r"with a context|in another context|in a capture",
        r"cuLaunchKernelEx( config ones)?",
        "the guest reads attributes before it knows the function",
    ),
    Known(
        r"with a context",
        r"cuLinkAddFile_v2 type .*",
        "the file is looked for first natively",
    ),
    Known(
        r"with a context",
        r"cuMemGetInfo_v2 (free|total) null",
        "the guest does not need them",
    ),
    Known(
        r"in a capture that is (global|thread)",
        r"cuMemFreeHost( p null)?",
        "memory of no address is none, or no work",
    ),
    Known(
        r"with a context",
        r"cuMemHostRegister_v2 Flags .*",
        "read-only memory is not carried",
    ),
    Known(
        r"with a context",
        r"cuMem(GetDefault|Get|Set)MemPool location .*",
        "places that are not carried",
    ),
    Known(
        r"with a context",
        r"cuPointerGetAttribute attribute 5",
        "tokens are not carried",
    ),
    Known(
        r"with a context",
        r"cuMemAlloc(FromPool)?Async bytesize zero",
        "the guest allocates nothing",
    ),
    Known(
        r"with a context",
        r"cuOccupancyMaxPotentialBlockSize(WithFlags)? blockSizeLimit negative",
        "a limit that makes no sense",
    ),
    Known(
        r"with a context",
        r"cuOccupancyMax(PotentialClusterSize|ActiveClusters) config .*",
        "a launch that makes no sense",
    ),
    Known(
        r"with a context",
        r"cuStreamGetCtx_v2 pGreenCtx null",
        "the guest does not need it",
    ),
    Known(
        r"with a context|in another context|of a destroyed context|after a reset|in a capture",
        r"cuStreamBeginCaptureToGraph.*",
        "which of two wrong arguments is told",
    ),
    Known(
        r"in another context",
        r"cuLaunch(Grid)?",
        "the function of another context",
    ),
    Known(
        r"of a destroyed context|after a reset",
        r"cuGraphInstantiateWithFlags|cuGraphExecGet(Flags|Id)|cuGraphExecDestroy",
        "graphs end with no context natively",
    ),
    Known(
        r"of a destroyed context|after a reset|after a sticky error",
        r"cuGraph(AddNode|NodeSetParams)(_v2|_v3)?",
        "which of two wrong arguments is told",
    ),
    Known(
        r"of a destroyed context|after a reset",
        r"cuMemFree_v2",
        "memory of a context that has ended",
    ),
    Known(
        r"of a destroyed context|after a reset",
        r"cuStream(Write|Wait)Value(32|64)_v2",
        "memory of a context that has ended; nodes are not carried",
    ),
    Known(
        r"after a reset",
        r"cu(Mipmapped)?Array.*",
        "after a reset the primary context is as good as new natively",
    ),
    Known(
        r"without a context|after a sticky error",
        r"cuGraph(AddKernel|KernelNodeSet|AddMemcpy|AddMemset|EventRecordNodeSet|EventWaitNodeSet).*",
        "the simulated device asks for a context where a node is made",
    ),
    Known(
        r"with a context",
        r"cuGraphConditionalHandleCreate ctx null",
        "the graph has a value of another context",
    ),
    Known(
        r"of a destroyed context|after a reset|in a capture",
        r"cuMemcpy(HtoD|DtoH|DtoD|DtoA|AtoD|HtoA|AtoH|AtoA|2D|2DUnaligned|3D|Peer)_v2|cuMemcpy(Peer|3DPeer)?",
        "what a capture forbids, for which of two reasons",
    ),
    Known(
        r"in a capture",
        r"cuGraphInstantiateWithParams|cuGraphUpload|cuLaunch(Kernel|HostFunc(_v2)?)",
        "what is carried in a capture",
    ),
    Known(
        r"in a capture",
        r"cuMem(Alloc(Pitch|Host|Managed)?|FreeAsync|Alloc(FromPool)?Async"
        r"|Prefetch(Batch)?Async(_v2)?|Discard(AndPrefetch)?BatchAsync)",
        "what is carried in a capture",
    ),
    Known(
        r"in a capture",
        r"cuStream(Destroy_v2|AttachMemAsync|BatchMemOp_v2)",
        "what is carried in a capture",
    ),
    Known(
        r"in a capture that is relaxed",
        r"cuCtxSynchronize_v2",
        "another context than that of the capture",
    ),
    Known(
        r"with a context",
        r"cuGraphAdd(BatchMemOp|MemAlloc)Node nodeParams ones",
        "lists of nonsense length are read",
    ),
)
