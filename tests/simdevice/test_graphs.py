"""Graphs: what may run at once, what runs one after the other, and how long things live."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

from .driver import (
    HOST_FUNCTION,
    INVALID_VALUE,
    NOT_READY,
    SUCCESS,
    Driver,
)


class HostNode(ctypes.Structure):
    """CUDA_HOST_NODE_PARAMS."""

    _fields_ = (("function", ctypes.c_void_p), ("user", ctypes.c_void_p))


class Fill(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class Graph:
    """A graph whose nodes call Python."""

    def __init__(self, cu: Driver) -> None:
        self.cu = cu
        self.handle = cu.out("cuGraphCreate", 0)
        self._keep: list[object] = []

    def _after(self, nodes: tuple[int, ...]) -> tuple[object, int]:
        return (ctypes.c_uint64 * max(1, len(nodes)))(*nodes), len(nodes)

    def call(self, function: object, *after: int) -> int:
        wrapped = HOST_FUNCTION(lambda _: function())  # type: ignore[operator]
        self._keep.append(wrapped)
        params = HostNode(ctypes.cast(wrapped, ctypes.c_void_p), None)
        return int(self.cu.out("cuGraphAddHostNode", self.handle, *self._after(after), ctypes.byref(params)))

    def fill(self, address: int, value: int, context: int, *after: int) -> int:
        params = Fill(address, 0, value, 4, 1, 1)
        return int(
            self.cu.out(
                "cuGraphAddMemsetNode", self.handle, *self._after(after), ctypes.byref(params), context
            )
        )

    def instance(self) -> int:
        return int(self.cu.out("cuGraphInstantiateWithFlags", self.handle, 0))


def test_branches_run_at_once(cu: Driver, context: int) -> None:
    """Two nodes that wait for each other: one after the other they would wait for ever."""
    graph, stream = Graph(cu), cu.stream()
    here, there = threading.Event(), threading.Event()
    log: list[str] = []

    def left() -> None:
        here.set()
        assert there.wait(60)
        log.append("branch")

    def right() -> None:
        there.set()
        assert here.wait(60)
        log.append("branch")

    first = graph.call(lambda: log.append("first"))
    last = graph.call(lambda: log.append("last"), graph.call(left, first), graph.call(right, first))
    assert last
    cu.ok("cuGraphLaunch", graph.instance(), stream)
    cu.ok("cuStreamSynchronize", stream)
    assert log == ["first", "branch", "branch", "last"]


def test_launches_of_one_instance_do_not_overlap(cu: Driver, context: int) -> None:
    graph, streams = Graph(cu), [cu.stream() for _ in range(2)]
    go, running = threading.Event(), []

    def work() -> None:
        running.append(1)
        assert go.wait(60)
        assert running == [1]
        running.pop()

    graph.call(work)
    instance = graph.instance()
    for stream in streams:
        cu.ok("cuGraphLaunch", instance, stream)
    assert cu.status("cuStreamQuery", streams[1]) == NOT_READY
    go.set()
    for stream in streams:
        cu.ok("cuStreamSynchronize", stream)
    assert running == []


def test_the_stream_waits_for_all_branches(cu: Driver, context: int) -> None:
    graph, stream, memory = Graph(cu), cu.stream(), cu.alloc(64)
    for i in range(16):
        graph.fill(memory + 4 * i, i, context)
    cu.ok("cuGraphLaunch", graph.instance(), stream)
    buffer = ctypes.create_string_buffer(64)
    cu.ok("cuMemcpyDtoHAsync_v2", buffer, memory, 64, stream)
    cu.ok("cuStreamSynchronize", stream)
    assert buffer.raw == b"".join(i.to_bytes(4, "little") for i in range(16))


def test_threads_launch_and_destroy(cu: Driver, context: int) -> None:
    """Instances end while they run, in several threads."""
    memory = cu.alloc(8 * 4)
    failed: list[int] = []

    def work(number: int) -> None:
        failed.append(cu.status("cuCtxSetCurrent", context))
        stream, left, right = cu.stream(), memory + 8 * number, memory + 8 * number + 4
        for round_ in range(20):
            graph = Graph(cu)
            first = graph.fill(left, 0, context)
            graph.fill(left, round_, context, first)
            graph.fill(right, round_, context, first)
            instance = graph.instance()
            failed.append(cu.status("cuGraphDestroy", graph.handle))
            failed.append(cu.status("cuGraphLaunch", instance, stream))
            failed.append(cu.status("cuGraphExecDestroy", instance))
        failed.append(cu.status("cuStreamSynchronize", stream))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(failed) == {SUCCESS}
    assert cu.read(memory, 32) == (19).to_bytes(4, "little") * 8


def test_threads_capture(cu: Driver, context: int) -> None:
    """Captures of several threads that concern no other."""
    memory = cu.alloc(4 * 4)
    failed: list[int] = []

    def work(number: int) -> None:
        failed.append(cu.status("cuCtxSetCurrent", context))
        stream, graph = cu.stream(), ctypes.c_uint64()
        for round_ in range(20):
            failed.append(cu.status("cuStreamBeginCapture_v2", stream, 1))
            failed.append(cu.status("cuMemsetD32Async", memory + 4 * number, round_, 1, stream))
            failed.append(cu.status("cuStreamEndCapture", stream, ctypes.byref(graph)))
            instance = cu.out("cuGraphInstantiateWithFlags", graph.value, 0)
            failed.append(cu.status("cuGraphLaunch", instance, stream))
        failed.append(cu.status("cuStreamSynchronize", stream))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(failed) == {SUCCESS}
    assert cu.read(memory, 16) == (19).to_bytes(4, "little") * 4


def test_a_graph_of_a_context_that_is_gone(cu: Driver) -> None:
    graph = Graph(cu)
    with cu.context() as gone:
        graph.fill(cu.alloc(4), 1, gone)
        instance = graph.instance()
        stream = cu.stream()
        cu.ok("cuStreamBeginCapture_v2", stream, 0)
    with cu.context():
        assert cu.status("cuGraphLaunch", instance, 0) == INVALID_VALUE  # it ended with the context
        cu.free(cu.alloc(4))  # the capture ended with its stream
    cu.ok("cuGraphDestroy", graph.handle)


def test_a_fill_goes_elsewhere_when_its_memory_was_freed(cu: Driver, context: int) -> None:
    """By a change of its node, and by another graph."""
    graph, other, stream = Graph(cu), Graph(cu), cu.stream()
    gone, memory = cu.alloc(4), cu.alloc(4)
    node, instances = graph.fill(gone, 1, context), [graph.instance() for _ in range(2)]
    cu.free(gone)
    fill = Fill(memory, 0, 7, 4, 1, 1)
    cu.ok("cuGraphExecMemsetNodeSetParams", instances[0], node, ctypes.byref(fill), context)
    other.fill(memory, 8, context)
    cu.ok("cuGraphExecUpdate_v2", instances[1], other.handle, ctypes.create_string_buffer(64))
    for instance, value in zip(instances, (7, 8), strict=True):
        cu.ok("cuGraphLaunch", instance, stream)
        cu.ok("cuStreamSynchronize", stream)
        assert cu.read(memory, 4) == value.to_bytes(4, "little")


def test_a_destroyed_stream_is_captured_no_more(cu: Driver, context: int) -> None:
    stream = cu.stream()
    cu.ok("cuStreamBeginCapture_v2", stream, 0)
    assert cu.status("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 4) == 900
    cu.ok("cuStreamDestroy_v2", stream)
    cu.free(cu.alloc(4))


def test_it_can_be_drawn(cu: Driver, context: int, tmp_path: Path) -> None:
    graph = Graph(cu)
    graph.fill(cu.alloc(4), 0x77, context, graph.call(lambda: None))
    path = tmp_path / "graph.dot"
    cu.ok("cuGraphDebugDotPrint", graph.handle, str(path).encode(), 1)
    text = path.read_text()
    assert text.startswith("digraph")
    assert text.count("{") == text.count("}")
    assert text.count("->") == 1
    assert "HOST" in text
    assert "0x77" in text
    assert cu.status("cuGraphDebugDotPrint", graph.handle, b"/nowhere/graph.dot", 0) == 304
    assert cu.status("cuGraphDebugDotPrint", graph.handle, None, 0) == INVALID_VALUE
