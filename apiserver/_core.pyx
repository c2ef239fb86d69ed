# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The session engine: from the guest's socket to the driver and back, without the GIL. DESIGN.md explains it."""

from gpuferry.apiserver.end import End
from gpuferry.specs._generated import node_pb2

include "core/declarations.pxi"
include "_generated/frames.pxi"
include "_generated/messages.pxi"
include "_generated/kinds.pxi"
include "core/exhaustion.pxi"
include "core/types.pxi"
include "core/rooms/stats.pxi"
include "core/rooms/device.pxi"
include "core/rooms/budget.pxi"
include "core/rooms/window.pxi"
include "core/rooms/book.pxi"
include "core/rooms/sharing.pxi"
include "core/rooms/records.pxi"
include "core/rooms/aliases.pxi"
include "core/rooms/aside.pxi"
include "core/rooms/move.pxi"
include "core/rooms/objects.pxi"
include "core/rooms/images.pxi"
include "core/rooms/links.pxi"
include "core/rooms/graphs.pxi"
include "core/rooms/arrays.pxi"
include "core/rooms/staging.pxi"
include "core/rooms/streams.pxi"
include "core/rooms/input.pxi"
include "core/rooms/connection.pxi"
include "core/rooms/state.pxi"
include "core/rooms/journal.pxi"
include "core/rooms/waiters.pxi"
include "core/rooms/host_calls.pxi"
include "core/rooms/log.pxi"
include "core/rooms/output.pxi"
include "core/rooms/sending.pxi"
include "core/rooms/arrival.pxi"
include "core/rooms/turn.pxi"
include "core/rooms/residency.pxi"
include "core/session.pxi"
include "core/stats.pxi"
include "core/device.pxi"
include "core/budget.pxi"
include "core/state.pxi"
include "core/handles.pxi"
include "core/journal.pxi"
include "core/socket.pxi"
include "core/send.pxi"
include "core/log.pxi"
include "core/connection.pxi"
include "core/hold.pxi"
include "core/output.pxi"
include "core/waiters.pxi"
include "core/staging.pxi"
include "core/streams.pxi"
include "core/green.pxi"
include "core/tensor_maps.pxi"
include "core/book.pxi"
include "core/memory.pxi"
include "core/records.pxi"
include "core/sharing.pxi"
include "core/shared_moves.pxi"
include "core/aliases.pxi"
include "core/aside.pxi"
include "core/hash.pxi"
include "core/pointers.pxi"
include "core/residency.pxi"
include "core/variables.pxi"
include "core/images.pxi"
include "core/links.pxi"
include "core/graphs.pxi"
include "core/graph_nodes.pxi"
include "core/conditionals.pxi"
include "core/codec.pxi"
include "core/arrays.pxi"
include "core/mipmaps.pxi"
include "core/textures.pxi"
include "core/references.pxi"
include "_generated/codecs.pxi"
include "core/context_ops.pxi"
include "core/session_ops.pxi"
include "core/host_calls.pxi"
include "core/turn.pxi"
include "core/restore_ops.pxi"
include "_generated/objects.pxi"
include "_generated/dispatch.pxi"
include "core/receive.pxi"
include "core/scrub.pxi"


class DeviceError(RuntimeError):
    """A driver call failed."""


class SessionOver(RuntimeError):
    """There is no session (any more) that could be moved."""


def _check(int status, str doing):
    cdef const char *name = NULL
    if status != cu.CUDA_SUCCESS:
        cu.cuGetErrorName(<cu.CUresult>status, &name)
        raise DeviceError(f"{doing}: {name.decode() if name != NULL else status}")


cdef gf_tls *_restore_tls(bytes state) except? NULL:
    """NULL: in clear."""
    cdef char why[256]
    cdef const char *data = state
    cdef gf_tls *tls
    if not state:
        return NULL
    tls = gf_tls_restore(data, len(state), why, sizeof(why))
    if tls == NULL:
        raise RuntimeError((<bytes>why).decode(errors="replace"))
    return tls


include "faces/service.pxi"
include "faces/stillness.pxi"
include "faces/contents.pxi"
include "faces/residence.pxi"


cdef class Core(Residence):
    """The engine, as Python sees it: a face for each who asks."""


def blank_pages(const uint8_t[::1] data not None) -> list[bool]:
    """Of each page of host memory, whether it is zero everywhere."""
    cdef size_t at
    cdef size_t pages = data.shape[0] >> PAGE_BITS
    cdef vector[bint] blank
    with nogil:
        for at in range(pages):
            blank.push_back(is_blank(&data[at << PAGE_BITS], PAGE))
    return [bool(one) for one in blank]
