"""Handlers of signals that interrupt a call of CUDA, or a fault in managed memory, and call CUDA."""

from __future__ import annotations

from pathlib import Path

from tests.guest.conftest import Guest, preloaded
from tests.guest.fake_server import Answer, FakeServer, Frame

PAGE = 4096
LIBC = """
libc = ctypes.CDLL(None)
libc.signal.restype = ctypes.c_void_p
function = ctypes.CFUNCTYPE(None, ctypes.c_int)
"""


def pages(frame: Frame) -> Answer:
    if frame.name != "sessionCopyOut":
        return Answer()
    size = int.from_bytes(frame.body[16:24], "little")
    return Answer(body=(7).to_bytes(4, "little") * (size // 4))


def test_a_handler_that_interrupts_a_send_or_a_fault_may_call_cuda(
    server: FakeServer, guest: Guest, tmp_path: Path
) -> None:
    server.answer = pages
    outcome = guest(
        f"""{LIBC}
start()
stream = made("cuStreamCreate", 1)
memory, shared = made("cuMemAlloc_v2", 1 << 20), made("cuMemAllocManaged", 4 * {PAGE}, 1)
word = lambda page: u32.from_address(shared + page * {PAGE})
@function
def handler(number):
    print("handler", cu("cuStreamSynchronize", stream), word(2).value)
libc.signal(10, handler)
ok("cuMemsetD32_v2", shared, 7, {PAGE})

def raised(function, name, *arguments):
    libc.raise_in(function)
    while not libc.is_raised():  # the I/O thread may have been the one that sent
        ok(name, *arguments)

raised(b"sendmsg", "cuCtxSynchronize")
print("wait")
raised(b"sendmsg", "cuMemcpyHtoD_v2", memory, bytes(1 << 20), 1 << 20)
print("copy")
ok("cuMemsetD32_v2", shared, 7, {PAGE})
ok("cuCtxSynchronize")
libc.raise_in(b"mprotect")
print("fault", word(0).value)
raised(b"mprotect", "cuMemsetD32_v2", shared, 7, {PAGE})
print("launch")
""",
        LD_PRELOAD=preloaded("raised.c", tmp_path),
    )
    told = [f"handler 0 7\n{what}\n" for what in ("wait", "copy", "fault 7", "launch")]
    assert outcome.stdout == "".join(told), outcome


def test_the_program_sees_its_own_handlers(guest: Guest) -> None:
    outcome = guest(
        f"""{LIBC}
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", u64 * 16), ("flags", ctypes.c_int), ("end", u64)]
one, other = function(lambda number: print("one", number)), function(lambda number: print("other", number))
address = lambda each: ctypes.cast(each, ctypes.c_void_p).value
assert libc.signal(10, one) is None
assert libc.signal(10, other) == address(one)
libc["raise"](10)
once, now = Action(address(one), (1 << 11,), ctypes.c_int(0x80000000).value), Action()  # SA_RESETHAND
libc.sigaction(10, byref(once), byref(now))
assert (now.handler, now.flags & 4) == (address(other), 0)  # SA_SIGINFO
libc.sigaction(10, None, byref(now))
assert (now.handler, now.mask[0], now.flags) == (address(one), 1 << 11, once.flags)
libc["raise"](10)
assert libc.signal(10, 1) is None and libc.signal(10, 0) == 1
"""
    )
    assert outcome.stdout == "other 10\none 10\n"
