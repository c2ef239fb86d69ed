"""Which server a guest is sent to: the decision by itself."""

from __future__ import annotations

import pytest
from gpuferry.monitor.cluster.registry.choose import POLICIES, Wish, choose, none_ever, why_none
from gpuferry.monitor.policy import Portion
from gpuferry.specs._generated import registry_pb2

GIB = 1 << 30


def server(
    address: str,
    sessions: int = 0,
    waiting: int = 0,
    places: int = 4,
    granted: int = 0,
    grantable: int = 16 * GIB,
    gpus: int = 1,
    alive: bool = True,
    drained: bool = False,
    accepting: bool = True,
    **labels: str,
) -> registry_pb2.Server:
    registration = registry_pb2.Registration(address=address, drained=drained)
    for name, value in labels.items():
        registration.labels.add(name=name, value=value)
    device = registry_pb2.Device(
        memory_grantable=grantable, memory_granted=granted, places=places, idle=max(places - sessions, 0)
    )
    load = registry_pb2.Load(sessions=sessions, waiting=waiting, devices=[device] * gpus, accepting=accepting)
    return registry_pb2.Server(registration=registration, alive=alive, load=load)


ANY = Wish(0)


def test_least_loaded_counts_sessions_per_place() -> None:
    servers = [server("a", sessions=2, places=4), server("b", sessions=3, places=12), server("c", sessions=1)]
    assert choose("least-loaded", servers, ANY, {}) == "b" or choose("least-loaded", servers, ANY, {}) == "c"
    assert choose("least-loaded", servers, ANY, {"b": 1, "c": 1}) == "b"


def test_most_packed_fills_what_is_begun() -> None:
    servers = [server("a", sessions=1), server("b", sessions=3), server("c")]
    assert choose("most-packed", servers, ANY, {}) == "b"
    assert choose("most-packed", servers, ANY, {"b": 1}) == "a"  # that guest takes b's last place


@pytest.mark.parametrize("policy", ["least-loaded", "most-packed"])
def test_where_all_are_full_the_shortest_queue(policy: str) -> None:
    servers = [server("a", sessions=4, waiting=3), server("b", sessions=4, waiting=1)]
    assert choose(policy, servers, ANY, {}) == "b"


@pytest.mark.parametrize("policy", ["least-loaded", "most-packed"])
def test_memory_that_is_free_goes_before_memory_that_is_not(policy: str) -> None:
    servers = [server("a", granted=14 * GIB), server("b", sessions=2, granted=4 * GIB)]
    assert choose(policy, servers, Wish(4 * GIB), {}) == "b"
    assert choose(policy, servers, Wish(15 * GIB), {}) in ("a", "b")  # it has to wait, which it can
    assert choose(policy, servers, Wish(17 * GIB), {}) is None


@pytest.mark.parametrize(
    "other",
    [
        server("b", alive=False),
        server("b", drained=True),
        server("b", accepting=False),
        server("b", zone="b"),
        server("b", zone="a", grantable=GIB),
    ],
)
def test_who_cannot_is_not_chosen(other: registry_pb2.Server) -> None:
    wish = Wish(2 * GIB, (("zone", "a"),))
    assert choose("least-loaded", [other], wish, {}) is None
    assert choose("least-loaded", [other, server("a", sessions=4, zone="a", gpu="x")], wish, {}) == "a"


def test_a_refusal_says_why() -> None:
    assert "server register" in why_none([], ANY)
    assert "1 GPU servers is alive" in why_none([server("a", alive=False)], ANY)
    assert "zone=a" in why_none([server("a")], Wish(0, (("zone", "a"),)))
    assert str(GIB) in why_none([server("a")], Wish(GIB))


@pytest.mark.parametrize("policy", ["least-loaded", "most-packed"])
def test_as_many_gpus_as_are_asked_for(policy: str) -> None:
    """With room on each; one that has them and is full before one that never will."""
    servers = [server("one"), server("full", gpus=2, granted=15 * GIB), server("two", sessions=2, gpus=2)]
    assert choose(policy, servers, Wish(4 * GIB, devices=2), {}) == "two"
    assert choose(policy, servers[:2], Wish(4 * GIB, devices=2), {}) == "full"
    assert choose(policy, servers, Wish(0, devices=3), {}) is None
    busy = [server("busy", sessions=4, gpus=2), server("idle", sessions=3, gpus=2)]
    assert choose(policy, busy, Wish(GIB, devices=2), {}) == "idle"
    assert "has 3 GPUs and can grant 7 bytes of device memory on each" in why_none(
        servers, Wish(7, devices=3)
    )


def test_a_gpus_own_label_is_the_servers_to_judge() -> None:
    """Nobody registers it: a function server asks for the GPU of its policy through a registry, too."""
    servers = [server("one", gpus=1), server("two", gpus=2, zone="a")]
    for index, found in (("0", "two"), ("1", "two"), ("2", None), ("x", None), ("-1", None)):
        assert choose("least-loaded", servers, Wish(0, labels=(("gpu", index),)), {}) == found
    assert choose("least-loaded", servers, Wish(0, labels=(("gpu", "0"), ("zone", "a"))), {}) == "two"
    assert choose("least-loaded", servers, Wish(0, labels=(("zone", "b"),)), {}) is None


# -- parts of a GPU, and labels


def shared(address: str, promised: int, *companies: tuple[str, str, str, str]) -> registry_pb2.Server:
    """A server of one GPU with sessions; of each scope: affinity, anti-affinity, exclusion."""
    made = server(address, sessions=1)
    (device,) = made.load.devices
    device.time_promised, device.busy = promised, max(len(companies), int(promised > 0))
    for scope, affinity, anti, exclusion in companies:
        company = device.company.add(scope=scope, exclusion=[exclusion])
        company.affinity.extend([affinity] if affinity else [])
        company.anti_affinity.extend([anti] if anti else [])
    return made


def wish(request: int = 0, affinity: str = "", anti: str = "", exclusion: str = "", scope: str = "") -> Wish:
    return Wish(0, portion=Portion(request, 1000, affinity, anti, exclusion, scope))


@pytest.mark.parametrize("policy", POLICIES)
def test_rules_hold_over_servers_whatever_the_policy(policy: str) -> None:
    servers = [shared("a", 700, ("", "red", "noisy", "")), shared("b", 300, ("", "", "", "team"))]
    assert choose(policy, servers, wish(500, exclusion="team"), {}) == "b"
    assert choose(policy, servers, wish(300), {}) == "a"
    assert choose(policy, servers, wish(300, affinity="red"), {}) == "a"
    assert choose(policy, servers, wish(0, anti="noisy", exclusion="team"), {}) == "b"
    # the group is at a, which has no room for it: it waits there and nowhere else
    assert choose(policy, [*servers, server("c")], wish(400, affinity="red"), {}) == "a"
    assert choose(policy, [*servers, server("c")], wish(400), {}) == "c"


def test_kubeshare_over_servers() -> None:
    servers = [shared("a", 300), shared("b", 600), shared("c", 500, ("", "red", "", "")), server("d")]
    assert choose("kubeshare", servers, wish(400), {}) == "b"  # best fit
    assert choose("kubeshare", servers, wish(500), {}) == "a"
    assert choose("kubeshare", servers, wish(100, affinity="blue"), {}) == "d"  # idle
    assert choose("kubeshare", servers[2:3], wish(500), {}) == "c"


def test_those_on_their_way_count() -> None:
    servers = [shared("a", 300), server("b")]
    assert choose("kubeshare", servers, wish(600), {}) == "a"
    assert choose("kubeshare", servers, wish(600), {"a": 1}, {"a": [wish(600)]}) == "b"
    red = wish(100, affinity="red")
    assert choose("kubeshare", servers, red, {"b": 1}, {"b": [red]}) == "b"


def test_labels_of_another_tenant_do_not_meet_unless_the_operator_says_so() -> None:
    servers = [shared("a", 300, ("acme", "", "", "team")), server("b", sessions=3)]
    assert choose("least-loaded", servers, wish(scope="other"), {}) == "a"
    servers[0].load.labels_of_all = True
    servers[0].load.devices[0].company[0].scope = ""
    assert choose("least-loaded", servers, wish(scope="other"), {}) == "b"


# -- memory that is there, and memory that is promised


def elastic(
    address: str, resident: int, idle: int = 0, sessions: int = 1, memory: int = 16 * GIB, times: int = 3
) -> registry_pb2.Server:
    """A server of one GPU that promises its memory several times."""
    made = server(address, sessions, granted=resident, grantable=times * memory)
    (device,) = made.load.devices
    device.memory, device.memory_resident, device.memory_idle = memory, resident, idle
    return made


@pytest.mark.parametrize("policy", POLICIES)
def test_a_program_goes_where_others_need_not_make_room_for_it(policy: str) -> None:
    """Then where those do who are idle, then where all take turns; then it waits."""
    busy, idle, free = (
        elastic("a", 14 * GIB),
        elastic("b", 14 * GIB, 12 * GIB),
        elastic("c", 4 * GIB, sessions=3),
    )
    assert choose(policy, [busy, idle, free], Wish(8 * GIB), {}) == "c"
    assert choose(policy, [busy, idle], Wish(8 * GIB), {}) == "b"
    assert choose(policy, [busy], Wish(8 * GIB), {}) == "a"
    small = Wish(2 * GIB)
    assert choose(policy, [busy, free], small, {}) == choose(
        policy, [server("a", 1), server("c", 3)], small, {}
    )
    full = elastic("d", 0, sessions=4)  # its API servers are all taken
    assert choose(policy, [full, busy], Wish(8 * GIB), {}) == "a"


@pytest.mark.parametrize("policy", POLICIES)
def test_those_on_their_way_have_their_memory_there(policy: str) -> None:
    servers = [elastic("a", 4 * GIB), elastic("b", 14 * GIB, 12 * GIB, sessions=3)]
    coming = Wish(8 * GIB)
    assert choose(policy, servers, Wish(4 * GIB), {"a": 1}, {"a": [coming]}) == "a"
    assert choose(policy, servers, Wish(6 * GIB), {"a": 1}, {"a": [coming]}) == "b"


def test_no_session_gets_more_than_its_gpu_has_however_often_that_is_promised() -> None:
    servers = [elastic("a", 0), elastic("b", 0, sessions=3, memory=24 * GIB, times=1)]
    assert choose("least-loaded", servers, Wish(20 * GIB), {}) == "b"
    assert choose("least-loaded", servers, Wish(32 * GIB), {}) is None


def test_who_asks_for_nothing_wants_what_is_usual() -> None:
    servers = [server("a", granted=14 * GIB), server("b", sessions=3)]
    assert choose("least-loaded", servers, ANY, {}) == "a"
    for one in servers:
        one.load.devices[0].memory_usual = 4 * GIB
    assert choose("least-loaded", servers, ANY, {}) == "b"


def test_a_function_goes_where_it_is_loaded_if_that_is_as_good() -> None:
    servers = [server("a"), server("b")]
    assert choose("least-loaded", servers, ANY, {}, holders=["b"]) == "b"
    assert choose("most-packed", servers, ANY, {}, holders=["b"]) == "b"
    assert choose("kubeshare", servers, ANY, {}, holders=["b"]) == "b"
    assert choose("least-loaded", [servers[0], server("b", sessions=1)], ANY, {}, holders=["b"]) == "a"


def test_what_no_server_has_is_known_once_all_have_said_what_they_have() -> None:
    large, pair = server("a"), server("b", grantable=4 * GIB, gpus=2)
    both = [large, pair]
    assert none_ever(both, Wish(16 * GIB + 1))
    assert not none_ever(both, Wish(16 * GIB))
    assert none_ever(both, Wish(5 * GIB, devices=2))
    assert not none_ever(both, Wish(4 * GIB, devices=2))
    assert none_ever(both, Wish(0, devices=3))
    for may in (
        server("c", alive=False),
        server("c", grantable=0),
        server("c", drained=True, grantable=32 * GIB),
    ):
        assert not none_ever([*both, may], Wish(17 * GIB))
    assert not none_ever([], Wish(1))
    assert not none_ever([large], Wish(GIB, (("zone", "a"),)))  # labels come with a word
