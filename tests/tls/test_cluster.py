"""A program that names a registry, where all is TLS: the way to it, to the GPU server, and between them."""

from __future__ import annotations

from tests.differential.test_programs import built, native
from tests.helpers import programs
from tests.helpers.certificates import Certificates
from tests.helpers.running import guest_environment, run
from tests.monitor import harness
from tests.registry.running import registry

PROGRAM = programs.program("vector_add_driver")


def test_a_registry_sends_a_program_on(certificates: Certificates) -> None:
    """With an authority it gets its answer. Without one it believes neither of them, and goes nowhere."""
    with registry(*certificates.flags()) as sends:
        joined = ("--registry", sends.control, "--cluster-key-file", sends.key_file)
        with harness.monitor("--pool", "1", *certificates.flags(), *joined, server=None) as server:
            sends.register(server.tcp)
            sends.wait_for(server.tcp, alive=True)
            assert sends.address.startswith("tls://")
            settings = {"GPUFERRY_MONITOR": sends.address, "GPUFERRY_TOKEN": sends.token}
            believing = {**settings, "GPUFERRY_TLS_CA": str(certificates.authority)}
            there = run([built(PROGRAM)], guest_environment(believing))
            assert (there.status, there.stdout) == (0, native(PROGRAM).stdout), there.stderr
            assert server.status().monitor.sessions_granted == 1
            doubting = run([built(PROGRAM)], guest_environment(settings))
            assert doubting.status != 0
            assert server.status().monitor.sessions_granted == 1
