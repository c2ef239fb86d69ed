"""Whose connections of a control port go when there are too many."""

from __future__ import annotations

from gpuferry.monitor.service.acceptor import origin
from gpuferry.monitor.service.places import BURST, UNPROVEN_SECONDS, Places, Visitor

from .test_rates import Clock


class Port:
    """A port with places for 32: 16 unproven, 8 of one address; 8 tenants', 4 of one tenant."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.places = Places(32, self.clock)
        self.cut: list[Visitor] = []

    def come(self, address: str) -> Visitor:
        def cut() -> None:
            assert visitor
            self.cut.append(visitor)

        visitor = self.places.arrive(address, cut)
        assert visitor
        return visitor

    def tenants(self, name: str, count: int) -> tuple[list[Visitor], list[str | None]]:
        came = [self.come(name) for _ in range(count)]
        return came, [self.places.prove(one, name) for one in came]


def test_of_one_address_that_proves_nothing_the_oldest_goes() -> None:
    port = Port()
    other = port.come("10.0.0.2")
    came = [port.come("10.0.0.1") for _ in range(20)]
    assert port.cut == came[:12]
    assert len(port.places) == 9
    assert port.places.prove(other, None) is None


def test_of_many_addresses_the_one_with_most_makes_room() -> None:
    port = Port()
    crowd = [port.come("10.0.0.1") for _ in range(4)]
    for number in range(12):
        port.come(f"10.0.1.{number}")
    port.come("10.0.0.2")
    assert port.cut == crowd[:1]


def test_who_has_proven_nothing_in_time_is_cut_off() -> None:
    port = Port()
    silent, operator, (tenant,) = port.come("a"), port.come("a"), port.tenants("t", 1)[0]
    port.places.prove(operator, None)
    port.clock.now = UNPROVEN_SECONDS
    port.places.cut_late()
    assert port.cut == []
    port.clock.now = UNPROVEN_SECONDS + 0.1
    port.places.cut_late()
    assert port.cut == [silent]
    port.places.end(tenant)  # what is left to say to it is said, or not
    port.clock.now += UNPROVEN_SECONDS + 0.1
    port.places.cut_late()
    assert port.cut == [silent, tenant]


def test_a_tenant_has_so_many_and_is_told_so() -> None:
    port = Port()
    _, told = port.tenants("t", 6)
    assert told[:4] == [None] * 4
    assert told[4:] == ["tenant t has 4 connections already: close some"] * 2
    assert port.places.prove(port.come("u"), "u") is None


def test_tenants_make_room_for_each_other() -> None:
    port = Port()
    crowd, _ = port.tenants("s", 4)
    port.tenants("t", 4)
    assert port.places.prove(port.come("u"), "u") is None
    assert port.cut == crowd[:1]
    for name in ("v", "w", "x", "y"):
        assert port.tenants(name, 1)[1] == [None]
    port.tenants("z", 1)
    (told,) = port.tenants("late", 1)[1]
    assert told is None or "connections already" in told


def test_neither_tenants_nor_strangers_keep_the_operator_out() -> None:
    """It comes from where the crowd is; its connections stay, as many as there are places of its own."""
    port = Port()
    for number in range(8):
        port.tenants(f"tenant{number}", 4)
    for number in range(50):
        port.come(f"10.0.0.{number}")
    operators = []
    for _ in range(8):
        operators.append(port.come("10.0.0.1"))
        assert port.places.prove(operators[-1], None) is None
    for number in range(50):
        port.come(f"10.0.0.{number}")
    assert not set(operators) & set(port.cut)
    assert len(port.places) <= 32


def test_a_place_that_was_left_is_free() -> None:
    port = Port()
    came, _ = port.tenants("t", 4)
    port.places.leave(came[0])
    assert port.places.prove(port.come("t"), "t") is None
    assert port.cut == []


def test_who_comes_too_often_is_turned_away_at_the_door() -> None:
    port = Port()
    for _ in range(int(BURST)):
        port.come("10.0.0.1")
    assert port.places.arrive("10.0.0.1", lambda: None) is None
    port.come("10.0.0.2")


def test_addresses_of_one_network_of_ipv6_are_one() -> None:
    assert origin("10.0.0.1") == "10.0.0.1"
    assert origin("2001:db8:1:2::3") == origin("2001:db8:1:2:ffff::1%eth0") == "2001:db8:1:2::/64"
    assert origin("::ffff:10.0.0.1") == "10.0.0.1"  # all of IPv4 was one machine
    assert origin("2001:db8:1:3::3") != origin("2001:db8:1:2::3")
