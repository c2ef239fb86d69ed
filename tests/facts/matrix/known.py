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
        r"with a context|in a capture",
        r"cu(Tex|Surf)RefGet\w+ \w+ null",
        "there is no reference either: which of the two is looked at first",
    ),
    Known(
        r"with a context",
        r"cuGraphConditionalHandleCreate ctx null",
        "the graph has a value of another context",
    ),
    Known(
        r"after a sticky error",
        r"cuGraphAddKernelNode(_v2)? dependencies null|cuLibraryGet\w+ (name|symbol) null",
        "the kernel or the library cannot be had either: which of the two is looked at first",
    ),
    Known(
        r"after a sticky error",
        r"cuEventRecord(WithFlags)? hEvent null|cuMemcpy(HtoD|DtoH)Async(_v2)? (src|dst)Host null",
        "the stream's context has failed too: which of the two is looked at first",
    ),
    Known(
        r"of a destroyed context|after a reset",
        r"cuMemFree_v2",
        "an earlier case's allocation has the address: those of the window are used again at once",
    ),
    Known(
        r"with a context|in another context|of a destroyed context|after a reset|in a capture",
        r"cuMemFree",
        "the function of 32 bits is given half of an address, which is 0 natively",
    ),
)
