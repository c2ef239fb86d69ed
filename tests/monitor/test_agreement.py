"""What a server makes of a guest of another build, and what this server says to another one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from gpuferry.monitor.cluster.neighbours import check_agreement
from gpuferry.monitor.door import agreement, handshake
from gpuferry.monitor.door.agreement import Agreement, Malformed, agree, offer
from gpuferry.monitor.moves.migration import CannotMove
from gpuferry.specs._generated import frames, operations, wire
from gpuferry.specs._generated.frames import Extension
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest, Refused, connect, hello_frame, read_frame, read_greeting

FIRST = operations.RELEASES[0]
OURS = {1: 0x11, 2: 0x22, 3: 0x33, 200: 0x44, 201: 0x55}
THEIR_HASH = bytes(range(32))
FENCE, COUNTERS = 4, 211


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """This server speaks five operations, but before real guests."""
    agreement._offered.cache_clear()
    if "monitor" not in request.fixturenames:
        monkeypatch.setattr(operations, "SPOKEN", OURS)
        monkeypatch.setattr(operations, "RESTORE", frozenset((200, 201)))
    yield
    agreement._offered.cache_clear()


def spoken(digests: dict[int, int]) -> bytes:
    return b"".join(frames.Spoken(*each).pack() for each in digests.items())


def meets(theirs: dict[int, int]) -> Agreement:
    found = agree(THEIR_HASH, {Extension.OPERATIONS: spoken(theirs), Extension.VERSION: b"gpuferry 7"})
    assert found is not None
    assert found.version == "gpuferry 7"
    return found


@pytest.mark.parametrize(
    ("theirs", "common"),
    [
        (OURS, {1, 2, 3, 200, 201}),
        (OURS | {9: 0x99}, {1, 2, 3, 200, 201}),
        ({1: 0x11, 3: 0x33}, {1, 3}),
        (OURS | {2: 0x23}, {1, 3, 200, 201}),
        ({1: 0x12, 9: 0x99}, set()),
        ({}, set()),
    ],
    ids=["the same", "added there", "removed there", "changed", "nothing alike", "nothing"],
)
def test_what_both_lay_out_alike(theirs: dict[int, int], common: set[int]) -> None:
    found = meets(theirs)
    assert found.spoken is not None
    assert set(found.spoken) == common
    said = frames.Agreement.unpack(found.welcome)
    assert said.last_function == operations.FUNCTIONS[1]
    bits = found.welcome[said.SIZE : said.SIZE + said.bits_size]
    told = {number for place, number in enumerate(theirs) if bits[place // 8] >> place % 8 & 1}
    assert told == common
    assert found.welcome.endswith(operations.VERSION.encode())


def test_the_same_build_is_told_nothing() -> None:
    found = agree(wire.SPEC_HASH, {})
    assert found == Agreement()
    assert found.lacks([1, 2, 999]) == []


def test_a_release_is_known_by_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {number: digest for number, digest in FIRST.spoken.items() if number != FENCE}
    monkeypatch.setattr(operations, "SPOKEN", ours)
    agreement._released.cache_clear()
    found = agree(FIRST.spec_hash, {})
    agreement._released.cache_clear()
    assert found is not None
    assert (found.spoken, found.version) == (FIRST.spoken.keys() - {FENCE}, FIRST.version)
    assert found.welcome == b""
    assert found.lacks([FENCE, 5]) == [FENCE]


def test_of_whom_nothing_is_known() -> None:
    assert agree(THEIR_HASH, {}) is None


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (bytes(7), "OPERATIONS of 7 bytes: each one has 6"),
        (spoken(OURS) + spoken({2: 0x22}), "OPERATIONS lists sessionMemMap twice"),
        (spoken({60000: 1}) * 2, "OPERATIONS lists operation 60000 twice"),
    ],
    ids=["cut short", "twice", "unknown and twice"],
)
def test_what_is_no_list_of_operations(said: bytes, cause: str) -> None:
    with pytest.raises(Malformed, match=cause):
        agree(THEIR_HASH, {Extension.OPERATIONS: said})


@given(
    listed=st.lists(
        st.tuples(st.sampled_from([*OURS, 0, 4095, 65535]), st.sampled_from([*OURS.values(), 0, 2**32 - 1])),
        max_size=40,
    ),
    cut=st.integers(0, 5),
    version=st.binary(max_size=300),
)
def test_whatever_is_listed(listed: list[tuple[int, int]], cut: int, version: bytes) -> None:
    """What is agreed on is what both have with one digest, and nothing if the list is none."""
    said = b"".join(frames.Spoken(*each).pack() for each in listed)
    said = said[: len(said) - cut]
    claim = {Extension.OPERATIONS: said, Extension.VERSION: version}
    whole = listed[: len(said) // frames.Spoken.SIZE]
    if len(said) % frames.Spoken.SIZE or len(dict(whole)) < len(whole):
        with pytest.raises(Malformed):
            agree(THEIR_HASH, claim)
        return
    found = agree(THEIR_HASH, claim)
    assert found is not None
    assert found.spoken == frozenset(number for number, digest in whole if OURS.get(number) == digest)
    assert found.version.isprintable()
    head = frames.Agreement.unpack(found.welcome)
    assert len(found.welcome) == head.SIZE + head.bits_size + head.version_size
    bits = int.from_bytes(found.welcome[head.SIZE : head.SIZE + head.bits_size], "little")
    assert [bool(bits >> place & 1) for place in range(8 * head.bits_size)] == [
        OURS.get(number) == digest for number, digest in whole
    ] + [False] * (8 * head.bits_size - len(whole))


def test_a_version_is_no_control_sequence() -> None:
    found = agree(THEIR_HASH, {Extension.OPERATIONS: b"", Extension.VERSION: b"\x1b[31mred\n" + b"x" * 500})
    assert found is not None
    assert found.version.startswith("[31mred")
    assert len(found.version) <= agreement.VERSION_MOST


def test_an_offer_and_its_answer() -> None:
    """This server as a guest: what the other one said is what it understood."""
    other = {1: 0x11, 2: 0x2222, 200: 0x44}
    made = offer(operations.BUILD ^ 1)
    assert made.spec_hash == wire.SPEC_HASH
    claim = dict(extensions(made.extensions))
    assert claim[Extension.VERSION] == operations.VERSION.encode()
    listed = [frames.Spoken.unpack(claim[Extension.OPERATIONS], at) for at in range(0, 30, 6)]
    assert dict(listed) == OURS
    bits = bytes([sum((other.get(number) == digest) << i for i, (number, digest) in enumerate(listed))])
    answer = frames.Agreement(835, len(bits), 10).pack() + bits + b"gpuferry 7"
    assert made.agreed(answer) == Agreement(frozenset((1, 200)), "gpuferry 7")
    for nonsense in (b"", answer[:-1], answer + b"x", frames.Agreement(835, 2, 0).pack() + b"\xff\xff"):
        assert made.agreed(nonsense) is None


def extensions(data: bytes) -> Iterator[tuple[Extension, bytes]]:
    while data:
        head = frames.ExtensionHead.unpack(data)
        yield Extension(head.kind), data[head.SIZE : head.SIZE + head.size]
        data = data[head.SIZE + head.size :]


def test_what_is_said_to_whom() -> None:
    same = offer(operations.BUILD)
    assert (same.spec_hash, same.extensions) == (wire.SPEC_HASH, b"")
    assert same.agreed(b"") == Agreement()
    assert same.agreed(b"x") is None
    first = offer(0)
    assert (first.spec_hash, first.extensions) == (FIRST.spec_hash, b"")
    part = offer(operations.BUILD, {1, 200})
    assert part.listed == (1, 200)


def move(theirs: set[int], promised: set[int] | None = None) -> list[int]:
    limit = None if promised is None else frozenset(promised)
    return check_agreement(limit, "gpuferry 3", Agreement(frozenset(theirs), "gpuferry 7"))


def test_a_move_to_another_build() -> None:
    assert move({1, 2, 3, 200, 201}) == []
    assert move({1, 3, 200, 201}, promised={1, 3}) == []


def test_a_move_is_refused_before_it_begins() -> None:
    """The guest was promised what the destination lacks; both versions are named."""
    with pytest.raises(CannotMove) as caught:
        move({1, 3, 200, 201})
    for word in ("gpuferry 7", operations.VERSION, "gpuferry 3", wire.OPERATIONS[2]):
        assert word in caught.value.reason
    with pytest.raises(CannotMove, match=wire.OPERATIONS[2]):
        move({1, 3, 200, 201}, promised={1, 2})
    with pytest.raises(CannotMove, match="to take a session over"):
        move({1, 2, 3, 200})


def test_counters_may_go_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first release has them: it takes sessions too."""
    monkeypatch.setattr(operations, "SPOKEN", OURS | {COUNTERS: 0x66})
    monkeypatch.setattr(operations, "RESTORE", frozenset((200, 201, COUNTERS)))
    assert move({1, 2, 3, 200, 201}) == [COUNTERS]


def test_names() -> None:
    assert agreement.names([1, 2]) == "sessionClose, sessionMemMap"
    assert agreement.names([60000]) == "operation 60000"
    assert agreement.names(range(1, 9)).endswith(" and 3 more")


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "4") as running:
        yield running


@pytest.mark.system
def test_a_guest_of_the_first_release(monitor: harness.Monitor) -> None:
    guest = FakeGuest(monitor.tcp, monitor.token, spec=FIRST.spec_hash)
    guest.close()


def test_a_guest_that_says_what_it_speaks(monitor: harness.Monitor) -> None:
    said = spoken(operations.SPOKEN | {FENCE: 1, 60000: 2})
    guest = FakeGuest(
        monitor.tcp,
        monitor.token,
        spec=THEIR_HASH,
        extensions={Extension.OPERATIONS: said, Extension.VERSION: b"gpuferry 7"},
    )
    with guest:
        body = guest.welcome
        told = frames.Welcome.unpack(body)
        at = told.SIZE + told.device_count * frames.Device.SIZE
        assert body[at:].endswith(operations.VERSION.encode())
        size = frames.Agreement.unpack(body, at).bits_size
        at += frames.Agreement.SIZE
        bits = int.from_bytes(body[at : at + size], "little")
        lacking = {
            number for place, number in enumerate([*operations.SPOKEN, 60000]) if not bits >> place & 1
        }
        assert lacking == {FENCE, 60000}


@pytest.mark.parametrize("operation", sorted(agreement.SHARING))
def test_a_lease_is_not_shared_without_claims(monitor: harness.Monitor, operation: int) -> None:
    """Memory is claimed of a shared one: who cannot has a lease of its own, and is told of none."""
    digests = {number: digest for number, digest in operations.SPOKEN.items() if number != operation}
    said = {Extension.OPERATIONS: spoken(digests), Extension.PROGRAM: bytes(frames.PROGRAM_SIZE)}
    one, other = (FakeGuest(monitor.tcp, monitor.token, spec=THEIR_HASH, extensions=said) for _ in range(2))
    with one, other:
        for guest in (one, other):
            (session,) = (each for each in monitor.status().sessions if each.id == guest.number)
            assert session.lease == guest.number
            assert guest.welcome.endswith(operations.VERSION.encode())


def test_operations_that_are_cut_short(monitor: harness.Monitor) -> None:
    with pytest.raises(Refused) as caught:
        FakeGuest(monitor.tcp, monitor.token, spec=THEIR_HASH, extensions={Extension.OPERATIONS: bytes(7)})
    assert caught.value.reason == handshake.Reason.MALFORMED
    assert "OPERATIONS of 7 bytes" in caught.value.text


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from([*Extension, 0, 9, 65535]), max_size=4),
    values=st.lists(st.binary(max_size=90) | st.just(bytes(60000)), min_size=4, max_size=4),
    claimed=st.none() | st.integers(0, 65535),
)
def test_whatever_an_attacker_says(
    monitor: harness.Monitor, kinds: list[int], values: list[bytes], claimed: int | None
) -> None:
    """Who knows the token may say anything: a session, or a refusal that says why; and others get in."""
    said = [(kind, value, len(value)) for kind, value in zip(kinds, values, strict=False)]
    if said and claimed is not None:
        said[-1] = (*said[-1][:2], claimed)
    tail = b"".join(frames.ExtensionHead(kind, size).pack() + value for kind, value, size in said)
    with connect(monitor.tcp) as connection:
        frame = hello_frame(read_greeting(connection), monitor.token, spec=THEIR_HASH, tail=tail)
        with contextlib.suppress(OSError):  # it refused by the header already
            connection.sendall(frame)
        op, body = read_frame(connection)
    assert op in (frames.Frame.REFUSED, frames.Frame.WELCOME, frames.Frame.QUEUED)
    if op == frames.Frame.REFUSED:
        refusal = frames.Refused.unpack(body)
        reasons = handshake.Reason
        assert refusal.reason in (reasons.MALFORMED, reasons.SPEC, reasons.BAD_REQUEST, reasons.DENIED)
        assert body[refusal.SIZE :].decode().isprintable()
        assert len(body) > refusal.SIZE


def test_more_operations_than_a_hello_holds(monitor: harness.Monitor) -> None:
    said = b"".join(frames.Spoken(number, 1).pack() for number in range(10_900))
    other = {Extension.OPERATIONS: said, Extension.LABELS: b"a=b," * 200}
    with pytest.raises(Refused) as caught:
        FakeGuest(monitor.tcp, monitor.token, spec=THEIR_HASH, extensions=other)
    assert caught.value.reason == handshake.Reason.MALFORMED
    assert "at most 65536 are allowed" in caught.value.text


def test_as_many_operations_as_there_is_room_for(monitor: harness.Monitor) -> None:
    """Unknown ones are no harm."""
    said = b"".join(frames.Spoken(number, 1).pack() for number in range(10_000))
    with FakeGuest(
        monitor.tcp, monitor.token, spec=THEIR_HASH, extensions={Extension.OPERATIONS: said}
    ) as guest:
        assert guest.echo(b"in") == b"in"
