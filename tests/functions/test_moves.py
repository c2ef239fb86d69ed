"""A policy lets a replica run on another GPU than it was on: its memory moves there, and its state stays."""

from __future__ import annotations

import pytest

from tests.helpers.monitor import monitor
from tests.helpers.running import real_gpu
from tests.residency.lodgers import MIB, Operator

from .serving import serving, until
from .test_cuda import CUDA

GPUS = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "128MiB", "GPUFERRY_SIM_DEVICES": "2"}


@pytest.mark.some(1)
@pytest.mark.skipif(real_gpu(), reason="on two simulated devices")
@pytest.mark.parametrize("options", [(), ("--oversubscribe", "2")], ids=["rigid", "elastic"])
def test_the_only_replica_goes_where_its_turn_is(options: tuple[str, ...]) -> None:
    """LB gives each invocation to the GPU that had least: the other one. There may be no second replica."""
    with monitor("--pool", "2", *options, environment=GPUS) as gpus:
        settings = gpus.settings() | {"GPUFERRY_CONTROL": gpus.control}
        with serving("--policy", "lb", "--tokens", "1", environment=settings) as server:
            server.knows_gpus(2)  # a monitor is ready when one is; of the other it is told later
            server.deploy("mover", CUDA, most=1, gpu_memory=32 * MIB)
            [pid] = [one["pid"] for one in server.show("mover")["replicas"]]
            operator = Operator(gpus)
            try:
                for number, gpu in enumerate((0, 1, 0), 1):
                    # Where no API server is idle, nobody goes: it is served where it is.
                    until(lambda: [one.pool_idle > 0 for one in operator.status().devices], all)
                    got = server.invoke("mover")
                    assert (got.status, got.body) == (200, str(number).encode()), got
                    # One that is still moving, or whose memory is not given back, is not moved again.
                    until(lambda: gpus.log.read_text().count("migration done"), (number - 1).__eq__)
                    until(
                        lambda: [one.memory_granted for one in operator.status().devices].count(0), (1).__eq__
                    )
                    assert [one.device for one in operator.sessions().values()] == [gpu]
                    # Of that the function server is told a little later.
                    until(
                        lambda: [(one["pid"], one.get("gpu")) for one in server.show("mover")["replicas"]],
                        [(pid, gpu)].__eq__,
                    )
            finally:
                operator.close()
