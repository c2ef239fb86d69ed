"""Streams and events: what runs when, and what the host may know of it."""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time
from collections.abc import Callable

from .driver import (
    HOST_FUNCTION,
    INVALID_HANDLE,
    INVALID_VALUE,
    LEGACY,
    NOT_PERMITTED,
    NOT_READY,
    PER_THREAD,
    SUCCESS,
    Driver,
    Gate,
)

ROOM = 1 << 14  # operations (scheduler.c)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def on_stream(cu: Driver, stream: int, function: Callable[[], object]) -> object:
    """Has the stream call the function; the result must live until then."""
    wrapped = HOST_FUNCTION(lambda _: function())
    cu.ok("cuLaunchHostFunc", stream, wrapped, None)
    return wrapped


def test_work_is_asynchronous_and_in_order(cu: Driver, context: int) -> None:
    stream, pointer = cu.stream(), cu.alloc(4)
    gate = Gate(cu, stream)
    for value in (1, 2, 3):
        cu.ok("cuMemsetD32Async", pointer, value, 1, stream)
    assert cu.status("cuStreamQuery", stream) == NOT_READY
    gate.open()
    cu.ok("cuStreamSynchronize", stream)
    assert cu.status("cuStreamQuery", stream) == SUCCESS
    assert cu.read(pointer, 4) == b"\3\0\0\0"


def test_streams_are_independent(cu: Driver, context: int) -> None:
    held, free = cu.stream(), cu.stream()
    gate = Gate(cu, held)
    pointer = cu.alloc(4)
    cu.ok("cuMemsetD32Async", pointer, 5, 1, free)
    cu.ok("cuStreamSynchronize", free)
    assert cu.status("cuStreamQuery", held) == NOT_READY
    gate.open()
    cu.ok("cuCtxSynchronize")
    assert cu.status("cuStreamQuery", held) == SUCCESS


def test_legacy_stream_waits_for_blocking_streams_and_they_for_it(cu: Driver, context: int) -> None:
    blocking, other, unbound = cu.stream(0), cu.stream(0), cu.stream()
    log: list[str] = []
    gate = Gate(cu, blocking)
    keep = [
        on_stream(cu, blocking, lambda: log.append("blocking")),
        on_stream(cu, 0, lambda: log.append("legacy")),
        on_stream(cu, other, lambda: log.append("other")),
        on_stream(cu, unbound, lambda: log.append("unbound")),
    ]
    cu.ok("cuStreamSynchronize", unbound)
    assert log == ["unbound"]
    assert cu.status("cuStreamQuery", 0) == NOT_READY
    gate.open()
    cu.ok("cuStreamSynchronize", other)
    assert log == ["unbound", "blocking", "legacy", "other"]
    del keep


def test_per_thread_stream_is_a_blocking_stream_of_each_thread(cu: Driver, context: int) -> None:
    gate = Gate(cu, PER_THREAD)
    finished = threading.Event()

    def body() -> None:
        cu.ok("cuCtxSetCurrent", context)
        pointer = cu.alloc(16)
        cu.ok("cuMemsetD8Async", pointer, 1, 16, PER_THREAD)
        cu.ok("cuStreamSynchronize", PER_THREAD)
        finished.set()

    thread = threading.Thread(target=body)
    thread.start()
    assert finished.wait(120)  # it is not behind our gate
    thread.join()
    assert cu.status("cuStreamQuery", LEGACY) == NOT_READY
    gate.open()
    cu.ok("cuStreamSynchronize", LEGACY)
    assert cu.status("cuStreamQuery", PER_THREAD) == SUCCESS


def test_event_orders_streams_and_is_captured_at_the_call(cu: Driver, context: int) -> None:
    first, second = cu.stream(), cu.stream()
    event = cu.out("cuEventCreate", 0)
    log: list[int] = []
    cu.ok("cuStreamWaitEvent", second, event, 0)  # never recorded: no wait
    gate = Gate(cu, first)
    keep = [on_stream(cu, first, lambda: log.append(1))]
    cu.ok("cuEventRecord", event, first)
    cu.ok("cuStreamWaitEvent", second, event, 0)
    late = Gate(cu, first)
    cu.ok("cuEventRecord", event, first)  # does not move the wait
    keep.append(on_stream(cu, second, lambda: log.append(2)))
    assert cu.status("cuEventQuery", event) == NOT_READY
    gate.open()
    cu.ok("cuStreamSynchronize", second)
    assert log == [1, 2]
    assert cu.status("cuEventQuery", event) == NOT_READY
    late.open()
    cu.ok("cuEventSynchronize", event)
    assert cu.status("cuEventQuery", event) == SUCCESS
    del keep


def test_events_across_devices(cu: Driver, context: int) -> None:
    stream, event = cu.stream(), cu.out("cuEventCreate", 2)
    gate = Gate(cu, stream)
    cu.ok("cuEventRecord", event, stream)
    with cu.context(1):
        other = cu.stream()
        cu.ok("cuStreamWaitEvent", other, event, 0)
        assert cu.status("cuEventRecord", event, other) == INVALID_HANDLE  # of another context
        assert cu.status("cuStreamQuery", other) == NOT_READY
        gate.open()
        cu.ok("cuStreamSynchronize", other)


def test_elapsed_time(cu: Driver, context: int) -> None:
    stream = cu.stream()
    start, end, plain, never = (cu.out("cuEventCreate", flags) for flags in (0, 1, 2, 0))
    for event in (start, plain):
        cu.ok("cuEventRecord", event, stream)
    keep = on_stream(cu, stream, lambda: time.sleep(0.02))
    gate = Gate(cu, stream)
    cu.ok("cuEventRecord", end, stream)
    value = ctypes.c_float()
    for function in ("cuEventElapsedTime", "cuEventElapsedTime_v2"):
        assert cu.status(function, ctypes.byref(value), start, end) == NOT_READY
    gate.open()
    cu.ok("cuEventSynchronize", end)
    cu.ok("cuEventElapsedTime_v2", ctypes.byref(value), start, end)
    assert value.value >= 20
    forward = value.value
    cu.ok("cuEventElapsedTime_v2", ctypes.byref(value), end, start)
    assert value.value == -forward
    for pair in ((start, plain), (never, end), (start, 0x770), (start, never)):
        assert cu.status("cuEventElapsedTime_v2", ctypes.byref(value), *pair) == INVALID_HANDLE
    del keep


def test_callback_gets_stream_and_status(cu: Driver, context: int) -> None:
    stream, seen = cu.stream(), []
    callback = CALLBACK(lambda *arguments: seen.append(arguments))
    cu.ok("cuStreamAddCallback", stream, callback, 77, 0)
    cu.ok("cuStreamSynchronize", stream)
    assert seen == [(stream, 0, 77)]
    assert cu.status("cuStreamAddCallback", stream, None, None, 0) == INVALID_VALUE
    assert cu.status("cuStreamAddCallback", stream, callback, None, 1) == INVALID_VALUE
    assert cu.status("cuLaunchHostFunc", stream, None, None) == INVALID_VALUE


def test_host_functions_may_not_call_cuda(cu: Driver, context: int) -> None:
    stream, results = cu.stream(), []
    keep = on_stream(cu, stream, lambda: results.append(cu.status("cuStreamSynchronize", stream)))
    cu.ok("cuStreamSynchronize", stream)
    assert results == [NOT_PERMITTED]
    del keep


def test_batches_of_values(cu: Driver, context: int) -> None:
    stream, word = cu.stream(), cu.alloc(8)
    operations = (ctypes.c_uint64 * 18)()  # three of 48 bytes: operation, address, value, flags
    for i, fields in enumerate(((2, word, 7, 0), (1, word, 7, 1), (5, word, 2**40, 0))):
        operations[6 * i : 6 * i + 4] = list(fields)
    cu.ok("cuStreamBatchMemOp_v2", stream, 3, operations, 0)
    cu.ok("cuStreamSynchronize", stream)
    assert int.from_bytes(cu.read(word, 8), "little") == 2**40
    operations[0] = 99
    assert cu.status("cuStreamBatchMemOp_v2", stream, 1, operations, 0) == INVALID_VALUE


def test_host_functions_that_wait_hold_up_nobody(cu: Driver, context: int) -> None:
    """More streams than there are threads for busy work, all waiting for the last one."""
    release, streams = threading.Event(), [cu.stream() for _ in range(60)]
    keep = [on_stream(cu, stream, lambda: release.wait(120)) for stream in streams[:-1]]
    keep.append(on_stream(cu, streams[-1], release.set))
    cu.ok("cuCtxSynchronize")
    del keep


def test_destroyed_stream_finishes_its_work(cu: Driver, context: int) -> None:
    stream, pointer = cu.stream(), cu.alloc(4)
    gate = Gate(cu, stream)
    cu.ok("cuMemsetD32Async", pointer, 9, 1, stream)
    event = cu.out("cuEventCreate", 0)
    cu.ok("cuEventRecord", event, stream)
    cu.ok("cuStreamDestroy_v2", stream)
    for function in ("cuStreamQuery", "cuStreamSynchronize", "cuStreamDestroy_v2"):
        assert cu.status(function, stream) == INVALID_HANDLE
    gate.open()
    cu.ok("cuEventSynchronize", event)
    assert cu.read(pointer, 4) == b"\x09\0\0\0"


def test_properties_of_streams(cu: Driver, context: int) -> None:
    out = ctypes.c_int
    for flags, asked, priority in ((0, 3, 0), (1, -2, -2), (1, -99, -5)):
        stream = cu.out("cuStreamCreateWithPriority", flags, asked)
        value = out()
        cu.ok("cuStreamGetPriority", stream, ctypes.byref(value))
        assert value.value == priority
        cu.ok("cuStreamGetFlags", stream, ctypes.byref(value))
        assert value.value == flags
        found = ctypes.c_uint64()
        cu.ok("cuStreamGetCtx", stream, ctypes.byref(found))
        assert found.value == context
        cu.ok("cuStreamIsCapturing", stream, ctypes.byref(value))
        assert value.value == 0
    ids = []
    for stream in (LEGACY, PER_THREAD, cu.stream(), cu.stream()):
        number = ctypes.c_uint64()
        cu.ok("cuStreamGetId", stream, ctypes.byref(number))
        ids.append(number.value)
    assert len(set(ids)) == 4


def test_bad_arguments(cu: Driver, context: int) -> None:
    out = ctypes.byref(ctypes.c_uint64())
    assert cu.status("cuStreamCreate", out, 2) == INVALID_VALUE
    assert cu.status("cuStreamCreate", None, 0) == INVALID_VALUE
    assert cu.status("cuStreamDestroy_v2", 0) == INVALID_HANDLE
    assert cu.status("cuStreamDestroy_v2", LEGACY) == INVALID_HANDLE
    assert cu.status("cuEventCreate", out, 8) == INVALID_VALUE
    assert cu.status("cuEventCreate", out, 4) == INVALID_VALUE, "an event for several processes keeps no time"
    event = cu.out("cuEventCreate", 0)
    cu.ok("cuEventDestroy_v2", event)
    for function in ("cuEventDestroy_v2", "cuEventQuery", "cuEventSynchronize"):
        assert cu.status(function, event) == INVALID_HANDLE
    assert cu.status("cuEventRecord", event, 0) == INVALID_HANDLE
    assert cu.status("cuStreamWaitEvent", 0, event, 0) == INVALID_HANDLE


def test_write_and_wait_values(cu: Driver, context: int) -> None:
    first, second = cu.stream(), cu.stream()
    word = cu.alloc(8)
    for bits in (32, 64):
        largest = 2**bits - 1
        for flags, value in ((0, 5), (0, 3), (1, 5), (2, 4), (3, largest - 6)):  # at least, equal, and, nor
            cu.ok("cuMemsetD32_v2", word, 0 if flags != 3 else 6, 1)
            cu.ok("cuMemsetD32_v2", word + 4, 0, 1)
            cu.ok("cuCtxSynchronize")
            cu.ok(f"cuStreamWaitValue{bits}_v2", second, word, value, flags)
            assert cu.status("cuStreamQuery", second) == NOT_READY
            cu.ok(f"cuStreamWriteValue{bits}_v2", first, word, 5, 0)
            cu.ok("cuStreamSynchronize", second)
        cu.ok(f"cuStreamWaitValue{bits}_v2", second, word, largest, 0)  # 5 is cyclically after -1
        cu.ok("cuStreamSynchronize", second)
    assert cu.status("cuStreamWriteValue32_v2", first, word + 2, 1, 0) == INVALID_VALUE
    assert cu.status("cuStreamWriteValue32_v2", first, 0x1000, 1, 0) == INVALID_VALUE
    assert cu.status("cuStreamWriteValue32_v2", first, word, 1, 4) == INVALID_VALUE


def test_a_context_ends_in_spite_of_a_wait_that_never_ends(cu: Driver) -> None:
    context = cu.out("cuCtxCreate_v2", 0, 0)
    stream, word = cu.stream(), cu.alloc(4)
    cu.ok("cuStreamWaitValue32_v2", stream, word, 1, 1)
    cu.ok("cuCtxDestroy_v2", context)


def test_many_threads_share_a_stream(cu: Driver, context: int) -> None:
    stream, pointer = cu.stream(), cu.alloc(4 * 8)
    log: list[tuple[int, int]] = []
    kept: list[object] = []

    def body(number: int) -> None:
        cu.ok("cuCtxSetCurrent", context)
        for step in range(100):
            kept.append(on_stream(cu, stream, lambda step=step: log.append((number, step))))  # type: ignore[misc]
            cu.ok("cuMemsetD32Async", pointer + 4 * number, step, 1, stream)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cu.ok("cuStreamSynchronize", stream)
    for number in range(8):
        assert [step for who, step in log if who == number] == list(range(100))
    assert cu.read(pointer, 32) == (99).to_bytes(4, "little") * 8


def test_random_graph_of_streams_and_events(cu: Driver, context: int) -> None:
    """Each step waits for a random earlier one; all must run after what they wait for."""
    rng = random.Random(5)
    streams = [cu.stream(rng.choice([0, 1])) for _ in range(12)]
    order: list[int] = []
    events: list[int] = []
    needs: list[int | None] = []
    kept = []
    for step in range(400):
        stream = rng.choice(streams)
        need = rng.randrange(step) if step and rng.random() < 0.7 else None
        if need is not None:
            cu.ok("cuStreamWaitEvent", stream, events[need], 0)
        kept.append(on_stream(cu, stream, lambda step=step: order.append(step)))  # type: ignore[misc]
        event = cu.out("cuEventCreate", 2)
        cu.ok("cuEventRecord", event, stream)
        events.append(event)
        needs.append(need)
    cu.ok("cuCtxSynchronize")
    position = {step: i for i, step in enumerate(order)}
    assert len(position) == 400
    assert all(need is None or position[need] < position[step] for step, need in enumerate(needs))


def test_who_submits_without_end_waits_for_room(cu: Driver, context: int) -> None:
    """As with a device, whose driver has a call wait when about a thousand are before it in its stream. Other
    streams go on: one of them may be what lets that stream go on.
    """
    stream, other, pointer = cu.stream(), cu.stream(), cu.alloc(4)
    gate = Gate(cu, stream)
    submitted = 0

    def body() -> None:
        nonlocal submitted
        cu.ok("cuCtxSetCurrent", context)
        for _ in range(ROOM + 1000):
            cu.ok("cuMemsetD32Async", pointer, 1, 1, stream)
            submitted += 1

    thread = threading.Thread(target=body)
    thread.start()
    while submitted < ROOM - 10:
        time.sleep(0.01)
    time.sleep(0.2)
    assert submitted < ROOM
    cu.ok("cuMemsetD32Async", pointer, 1, 1, other)
    cu.ok("cuStreamSynchronize", other)
    gate.open()
    thread.join(120)
    cu.ok("cuStreamSynchronize", stream)
    assert submitted == ROOM + 1000


def test_work_that_goes_to_and_fro_takes_as_many_threads_as_there_are_streams(
    cu: Driver, context: int
) -> None:
    """Each step makes the other stream ready. On a busy machine whoever is called for it comes late, and a
    thread was begun in its place: hundreds, whose stacks were an API server's memory.
    """
    streams, event, pointer = (cu.stream(), cu.stream()), cu.out("cuEventCreate", 2), cu.alloc(4)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # inherited by the device's threads: all but one have to wait
    try:
        gate = Gate(cu, streams[0])
        for step in range(400):
            here, there = streams[step % 2], streams[(step + 1) % 2]
            cu.ok("cuMemsetD8Async", pointer, step % 256, 4, here)
            cu.ok("cuEventRecord", event, here)
            cu.ok("cuStreamWaitEvent", there, event, 0)
        before = len(os.listdir("/proc/self/task"))
        gate.open()
        cu.ok("cuCtxSynchronize")
        assert len(os.listdir("/proc/self/task")) <= before + 4
    finally:
        os.sched_setaffinity(0, cores)
