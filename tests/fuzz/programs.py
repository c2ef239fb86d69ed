"""What programs do, as frames: graphs, arrays, textures, what they share. A hostile guest takes them from
here and spoils some, for noise alone comes to no graph that is launched.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuferry.specs._generated.frames import PlainNode

from tests.apiserver.arrays import NO_PART, SAMPLER, description, resource
from tests.apiserver.guest import handle

PAGE = 2 << 20
EXTENT = 64  # of an array: bytes of a row, and rows
NODES_MOST = 12
WAITS, NOR = (1, 4), 3  # of CUstreamBatchMemOpType, and a flag of CUstreamWaitValue
WORD_OPERATIONS = (1, 2, 4, 5)  # CUstreamBatchMemOpType: waits for a word, writes one, of 32 bits and of 64
ARRAY_COPIES = ("sessionArrayIn", "sessionArrayOut", "sessionArrayFrom", "sessionArrayTo", "sessionArrayCopy")
WHOLE_WORD = struct.Struct("<Q2IQ")
EDGE = struct.Struct("<II8x")
KERNEL_PARAMS = struct.Struct("<QI")


@dataclass
class Call:
    """One operation with arguments that make sense where it stands."""

    op: str
    values: dict[str, Any]
    payload: bytes = b""


def call(op: str, payload: bytes = b"", **values: Any) -> Call:
    """A Call of the operation with this name, with these arguments."""
    return Call(op, values, payload)


class Programs:
    """Makes pieces of programs for a session with `pages` pages behind the beginning of its window."""

    def __init__(self, chance: random.Random, window: int, pages: int, kernel: int) -> None:
        self._chance = chance
        self._window, self._size = window, pages * PAGE
        self._kernel = kernel
        self._nodes: dict[int, list[str]] = {}  # of each graph: what added them
        self._pieces = (self.graph, self.graph, self.changes, self.arrays, self.textures, self.shares)

    def piece(self) -> Iterator[Call]:
        """One of them, from its beginning; whether what it names is there yet, others decide."""
        return self._chance.choice(self._pieces)()

    def _memory(self, size: int) -> int:
        return self._window + self._chance.randrange((self._size - size) // 8) * 8

    @property
    def _exec(self) -> int:
        return handle("graph_exec", self._chance.randrange(4))

    @property
    def _array(self) -> int:
        return handle("array", self._chance.randrange(4))

    @property
    def _event(self) -> int:
        return handle("event", 1 + (self._chance.random() < 0.1))

    @property
    def _stream(self) -> int:
        return self._chance.choice((0, 0, 2, handle("stream", 1)))

    # -- graphs

    def graph(self) -> Iterator[Call]:
        """Nodes, edges, launches; another one instead of an earlier one of the same number."""
        chance, exec_ = self._chance, self._exec
        yield call("cuGraphExecDestroy", hGraphExec=exec_)
        yield call("sessionGraphBegin", exec=exec_)
        yield from self._executable(exec_, chance.randrange(1, NODES_MOST), 0)
        if chance.random() < 0.3:
            yield call("sessionGraphRewind", exec=exec_)
            yield from self._executable(exec_, chance.randrange(1, NODES_MOST), 0)

    def conditional(self, exec_: int) -> Iterator[Call]:
        """The nodes of a graph with one conditional node, which is there, and of its first body."""
        yield call("sessionGraphEnter", exec=exec_, graph=1)
        for _ in range(self._chance.randrange(3)):
            yield self._node(exec_)
        yield call("sessionGraphEnter", exec=exec_, graph=0)
        yield call("sessionGraphPlace", exec=exec_, conditional=0)
        yield from self._executable(exec_, self._chance.randrange(1, NODES_MOST), 0)
        yield call("sessionGraphRewind", exec=exec_)

    def _executable(self, exec_: int, nodes: int, first: int) -> Iterator[Call]:
        chance, made = self._chance, [self._node(exec_) for _ in range(nodes)]
        self._nodes[exec_] = [each.op for each in made]
        yield from made
        edges = [
            EDGE.pack(first + source, first + target)
            for target in range(1, nodes)
            for source in {chance.randrange(target) for _ in range(chance.randrange(3))}
        ]
        yield call("sessionGraphEdges", b"".join(edges), exec=exec_, count=len(edges))
        yield call("sessionGraphReady", exec=exec_, flags=0)
        for _ in range(chance.randrange(3)):
            yield call("sessionGraphLaunch", exec=exec_, stream=self._stream)

    def changes(self) -> Iterator[Call]:
        """Of nodes of a graph that may be there, launches between them."""
        exec_ = self._exec
        for _ in range(self._chance.randrange(1, 6)):
            node, there = self._node(exec_), self._nodes.get(exec_, [])
            alike = [place for place, op in enumerate(there) if op == node.op]
            node.op = node.op.replace("sessionGraph", "sessionGraphSet")
            node.values["node"] = self._chance.choice(alike or range(NODES_MOST))
            yield node
            if self._chance.random() < 0.5:
                works = self._chance.choice((PlainNode.ENABLE, PlainNode.DISABLE))
                place = self._chance.randrange(NODES_MOST)
                yield call("sessionGraphSetNode", exec=exec_, node=place, kind=works, subject=0)
            if self._chance.random() < 0.5:
                yield call("sessionGraphLaunch", exec=exec_, stream=self._stream)

    def _node(self, exec_: int) -> Call:
        makers = (self._kernel_node, self._rows, self._rows, self._box, self._box, self._plain, self._words)
        made = self._chance.choice(makers)()
        made.values["exec"] = exec_
        return made

    def _kernel_node(self) -> Call:
        params = KERNEL_PARAMS.pack(self._memory(4), 3)
        return call(
            "sessionGraphKernel",
            params,
            function=self._kernel,
            grid=(1, 1, 1),
            block=(1, 1, 1),
            shared=0,
            attributes=0,
            params=len(params),
        )

    def _rows(self) -> Call:
        """A fill, or a copy as earlier guests send it."""
        copies = self._chance.random() < 0.5
        rows, width = self._chance.choice(((1, 1), (1, 4096), (7, 64)))
        element = 1 if copies else self._chance.choice((1, 2, 4))
        source = self._memory(1 << 16) if copies else 0
        return call(
            "sessionGraphRows",
            target=self._memory(1 << 16) & ~3,
            target_pitch=width * element,
            source=source,
            source_pitch=width if copies else 0,
            width=width,
            rows=rows,
            value=7,
            element=element,
        )

    def _box(self) -> Call:
        rows, layers = self._chance.choice(((1, 1), (8, 1), (4, 2)))
        values: dict[str, Any] = {"width": 16, "rows": rows, "layers": layers}
        for end in ("target", "source"):
            array = self._array if self._chance.random() < 0.3 else 0
            x = self._chance.randrange(EXTENT // 4 - 16 + 1) if array else self._memory(1 << 12)
            values |= {f"{end}_array": array, f"{end}_x": x, f"{end}_y": 0, f"{end}_z": 0}
            values |= {f"{end}_pitch": 0 if array else 32, f"{end}_height": 0 if array else 8}
        return call("sessionGraphBox", **values)

    def _plain(self) -> Call:
        kinds = (PlainNode.EMPTY, PlainNode.RECORD, PlainNode.WAIT)
        return call("sessionGraphNode", kind=self._chance.choice(kinds), subject=self._event)

    def _words(self) -> Call:
        """Written, or waited for until they are not all ones. Changes keep what is done to each."""
        kinds = (2, 4) if self._chance.random() < 0.8 else self._chance.sample(WORD_OPERATIONS, 2)
        words = [WHOLE_WORD.pack(self._memory(8), kind, NOR * (kind in WAITS), 0) for kind in kinds]
        return call("sessionGraphBatch", b"".join(words), count=len(words))

    # -- arrays and textures

    def arrays(self) -> Iterator[Call]:
        """One is made, perhaps of several layers or levels; then copies of all kinds."""
        chance, array = self._chance, self._array
        depth = chance.choice((0, 0, 3))
        shape = description(EXTENT, EXTENT, depth)
        if chance.random() < 0.3:
            mipmap = handle("mipmapped_array", chance.randrange(2))
            yield call("cuArrayDestroy", hArray=array)
            yield call("cuMipmappedArrayDestroy", hMipmappedArray=mipmap)
            shape = description(EXTENT, EXTENT)
            yield call("cuMipmappedArrayCreate", pHandle=mipmap, pMipmappedArrayDesc=shape, numMipmapLevels=3)
            level = chance.randrange(3)
            yield call("cuMipmappedArrayGetLevel", pLevelArray=array, hMipmappedArray=mipmap, level=level)
        else:
            yield call("cuArrayDestroy", hArray=array)
            yield call("cuArray3DCreate_v2", pHandle=array, pAllocateArray=shape)
        for _ in range(chance.randrange(6)):
            yield self._array_copy(array)

    def _array_copy(self, array: int) -> Call:
        chance, stream = self._chance, self._stream
        place: dict[str, Any] = {
            "x": chance.randrange(EXTENT - 16),
            "y": chance.randrange(EXTENT - 4),
            "z": 0,
        }
        size: dict[str, Any] = {"width": 16, "rows": 4}
        op = chance.choice(ARRAY_COPIES)
        if op == "sessionArrayCopy":
            ends = {f"{end}_{axis}": at for end in ("target", "source") for axis, at in place.items()}
            return call(
                op, stream=stream, target=array, source=chance.choice((array, self._array)), **ends, **size
            )
        if op in ("sessionArrayFrom", "sessionArrayTo"):
            size |= {"address": self._memory(1 << 12), "pitch": 32}
        data = bytes(64) if op == "sessionArrayIn" else b""
        return call(op, data, stream=stream, array=array, **place, **size)

    def textures(self) -> Iterator[Call]:
        """Textures and surfaces of arrays, which may end before them."""
        slot, array = self._chance.randrange(3), handle("array", 9)
        texture, surface = handle("texture_object", slot), handle("surface_object", slot)
        yield call("cuArray3DCreate_v2", pHandle=array, pAllocateArray=description(EXTENT, EXTENT))
        shape = resource(array)
        yield call("sessionTextureCreate", NO_PART, object=texture, wanted=0, resource=shape, texture=SAMPLER)
        yield call("sessionSurfaceCreate", object=surface, wanted=0, resource=shape)
        ends = [
            call("cuArrayDestroy", hArray=array),
            call("cuTexObjectDestroy", texObject=texture),
            call("cuSurfObjectDestroy", surfObject=surface),
        ]
        self._chance.shuffle(ends)
        yield from ends

    # -- what processes share

    def shares(self) -> Iterator[Call]:
        """Memory and events are exported under a few names, found, mapped and given up again."""
        chance = self._chance
        token = bytes([chance.randrange(3)]) * 32
        event, address = handle("event", 3), self._window + chance.randrange(self._size // PAGE) * PAGE
        far = self._window + (1 << 32) + chance.randrange(4) * PAGE
        yield call("sessionExportMemory", token=token, address=address, size=PAGE)
        yield call("cuEventDestroy_v2", hEvent=event)
        yield call("cuEventCreate", phEvent=event, Flags=6)  # CU_EVENT_INTERPROCESS, without times
        yield call("sessionExportEvent", token=token[::-1][:31] + b"e", event=event)
        yield call("sessionImportFind", session=chance.randrange(1, 4), token=token)
        yield call("sessionImportMap", token=token, address=far)
        yield call("sessionImportEvent", token=token[::-1][:31] + b"e", event=handle("event", 4))
        yield call("sessionMemUnmap", address=far, size=PAGE)
        if chance.random() < 0.5:
            yield call("sessionExportEnd", token=token)
