"""What Prometheus scrapes.

Every series exists, at zero, from the start: one that appears with its first event hides that event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuferry.specs._generated import control_pb2, tenants_pb2, wire
from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from ...devices.gpus import text_of_uuid
from ...policy.portion import FULL
from .accounting import Accounting
from .plain import word

GPU_LABELS = ("gpu", "UUID", "modelName", "Hostname")
STATES = ("starting", "idle", "busy", "stopping")
MEMORY_KINDS = ("total", "used", "grantable", "granted", "resident")
AWAY = (control_pb2.SESSION_STATE_SUSPENDED, control_pb2.SESSION_STATE_MOVED)  # their keepers are here alone
RESIDENCES = ("resident", "leaving", "host", "disk", "returning")
TENANT_COUNTERS = (
    ("sessions", "sessions", "Sessions that began"),
    ("wall_seconds", "wall_seconds", "Time of sessions, without that in a file"),
    ("gpu_seconds", "gpu_seconds", "Time for which sessions held a place on a GPU"),
    ("memory_byte_seconds", "memory_byte_seconds", "Device memory granted, by time"),
    ("calls", "calls", "CUDA calls that reached an API server"),
)
TURN_GAUGES = (
    ("share_ratio", "share", "Part of the sliding window in which sessions had turns, per token"),
    ("working", "working", "Sessions that have a turn"),
    ("waiting", "waiting", "Sessions that wait for a turn"),
)
TURN_COUNTERS = (
    ("s", "handed", "Turns that began, since the arbiter did"),
    ("_overruns", "overruns", "Turns that were taken because the session's work did not end"),
    ("_wait_seconds", "waited_seconds", "For which sessions waited for the turns that they got"),
    ("_own_seconds", "own_seconds", "Of API servers' own work on the GPU, as they say"),
)
MIGRATION_RESULTS = ("done", "failed")
START_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
DOWNTIME_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """A registry of its own, for the operator; what the monitor itself takes is in it, too."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._status = control_pb2.StatusReply()
        self.session_start = Histogram(
            "gpuferry_session_start_seconds",
            "From a guest's arrival to the start of its session",
            registry=self._registry,
            buckets=START_BUCKETS,
        )
        self.migration_downtime = Histogram(
            "gpuferry_migration_downtime_seconds",
            "For which a migrating program could not run",
            registry=self._registry,
            buckets=DOWNTIME_BUCKETS,
        )

    def expose(self, status: control_pb2.StatusReply, accounting: Accounting) -> bytes:
        """All metrics in Prometheus' text format, for this status."""
        self._status, self._totals, self._calls = status, accounting.totals, accounting.calls
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics, when Prometheus' library asks for them."""
        yield from self._monitor()
        yield from self._sessions()
        yield from self._devices()
        yield from self._migrations()
        yield from self._operations()

    def _monitor(self) -> Iterator[Metric]:
        info = self._status.monitor
        build = GaugeMetricFamily(
            "gpuferry_build_info", "What runs here", labels=("version", "protocol", "spec")
        )
        build.add_metric((info.version, str(info.protocol_version), info.spec_hash.hex()[:12]), 1)
        yield build
        up = GaugeMetricFamily("gpuferry_server_up", "This GPU server takes sessions", labels=("Hostname",))
        up.add_metric((info.hostname,), not info.draining)
        yield up
        contexts = GaugeMetricFamily("gpuferry_pool_contexts", "API servers", labels=("state",))
        names = [state_name(server.state) for server in self._status.servers]
        for state in STATES:
            contexts.add_metric((state,), names.count(state))
        yield contexts

    def _sessions(self) -> Iterator[Metric]:
        info, totals = self._status.monitor, self._totals
        running = sum(session.state not in AWAY for session in self._status.sessions)
        yield GaugeMetricFamily("gpuferry_sessions", "Running sessions", value=running)
        yield GaugeMetricFamily("gpuferry_queue_depth", "Waiting guests", value=len(self._status.queue))
        where = GaugeMetricFamily(
            "gpuferry_sessions_by_residency", "Where the memory of running sessions is", labels=("residency",)
        )
        names = [_residence_name(session.residency) for session in self._status.sessions]
        for residence in RESIDENCES:
            where.add_metric((residence,), names.count(residence))
        yield where
        copies = GaugeMetricFamily(
            "gpuferry_copy_bytes",
            "Copies of sessions' memory that is, or was, not on its GPU",
            labels=("kind",),
        )
        copies.add_metric(("host",), info.away_memory_used)
        copies.add_metric(("disk",), info.away_disk_used)
        yield copies
        started = CounterMetricFamily("gpuferry_sessions_started", "Guests that got a session")
        started.add_metric((), info.sessions_granted)
        yield started
        refused = CounterMetricFamily("gpuferry_sessions_refused", "Guests that were turned away")
        refused.add_metric((), info.sessions_refused)
        yield refused
        wire = CounterMetricFamily(
            "gpuferry_wire_bytes", "Bytes between guests and API servers", labels=("direction",)
        )
        wire.add_metric(("in",), totals["bytes_in"])
        wire.add_metric(("out",), totals["bytes_out"])
        yield wire

    def _devices(self) -> Iterator[Metric]:
        memory = GaugeMetricFamily("gpuferry_gpu_memory_bytes", "Device memory", labels=("kind", *GPU_LABELS))
        busy = GaugeMetricFamily(
            "gpuferry_gpu_utilization_ratio", "Part of the time in which kernels ran", labels=GPU_LABELS
        )
        promised = GaugeMetricFamily(
            "gpuferry_gpu_promised_ratio", "Part of the time that sessions were promised", labels=GPU_LABELS
        )
        up = GaugeMetricFamily("gpuferry_gpu_up", "The device serves sessions", labels=GPU_LABELS)
        for device in self._status.devices:
            labels = (
                str(device.ordinal),
                text_of_uuid(device.uuid, device.instance) if device.uuid else "",
                device.name,
                self._status.monitor.hostname,
            )
            for kind in MEMORY_KINDS:
                if kind != "used" or device.HasField("memory_used"):
                    memory.add_metric((kind, *labels), getattr(device, f"memory_{kind}"))
            if device.HasField("utilization"):
                busy.add_metric(labels, device.utilization)
            promised.add_metric(labels, device.time_promised / FULL)
            up.add_metric(labels, device.state == control_pb2.DEVICE_STATE_UP)
        yield from (memory, busy, promised, up)
        yield from self._turns()

    def _turns(self) -> Iterator[Metric]:
        """Where sessions take turns; elsewhere all of them are zero."""
        devices = [(str(device.ordinal), device.turns) for device in self._status.devices]
        for name, field, help in TURN_GAUGES:
            gauge = GaugeMetricFamily(f"gpuferry_gpu_turn_{name}", help, labels=("gpu",))
            for ordinal, turns in devices:
                gauge.add_metric((ordinal,), getattr(turns, field))
            yield gauge
        for name, field, help in TURN_COUNTERS:
            counter = CounterMetricFamily(f"gpuferry_gpu_turn{name}", help, labels=("gpu",))
            for ordinal, turns in devices:
                counter.add_metric((ordinal,), getattr(turns, field))
            yield counter

    def _migrations(self) -> Iterator[Metric]:
        results = CounterMetricFamily("gpuferry_migrations", "Sessions moved", labels=("result",))
        for result in MIGRATION_RESULTS:
            results.add_metric((result,), self._totals[f"migrations_{result}"])
        yield results
        moved = CounterMetricFamily("gpuferry_migration_bytes", "Device memory moved")
        moved.add_metric((), self._totals["migration_bytes"])
        yield moved

    def _operations(self) -> Iterator[Metric]:
        """By name; what a guest says of an id that no spec has ever given away is nobody's metric."""
        done = CounterMetricFamily("gpuferry_api_calls", "Calls that are done", labels=("api", "result"))
        time = SummaryMetricFamily(
            "gpuferry_api_call_seconds",
            "From dispatch to answer, of every call that is answered and of a sample of the others",
            labels=("api",),
        )
        for operation, name in wire.OPERATIONS.items():
            done.add_metric((name, "ok"), self._calls.succeeded[operation])
            done.add_metric((name, "error"), self._calls.failed[operation])
            time.add_metric((name,), self._calls.timed[operation], self._calls.seconds[operation])
        missed = CounterMetricFamily(
            "gpuferry_unsupported_calls", "Calls of functions that are not supported", labels=("api",)
        )
        for function, name in wire.UNSUPPORTED.items():
            missed.add_metric((name,), self._calls.unsupported[function])
        yield from (done, time, missed)


class _Usage:
    """Counters of tenants: as many tenants as the usage book tells apart."""

    def __init__(self, usage: Sequence[tenants_pb2.Usage], starts_refused: Mapping[str, int]) -> None:
        self._usage = usage
        self._starts_refused = starts_refused

    def collect(self) -> Iterator[Metric]:
        """A counter for each figure, with a series for each tenant."""
        for name, field, help in TENANT_COUNTERS:
            counter = CounterMetricFamily(f"gpuferry_tenant_{name}", help, labels=("tenant",))
            for usage in self._usage:
                counter.add_metric((usage.tenant,), getattr(usage, field))
            yield counter
        refused = CounterMetricFamily(
            "gpuferry_tenant_starts_refused",
            "Sessions that were refused because too many began (limits starts, burst)",
            labels=("tenant",),
        )
        for tenant in sorted({usage.tenant for usage in self._usage} | self._starts_refused.keys()):
            refused.add_metric((tenant,), self._starts_refused.get(tenant, 0))
        yield refused


def expose_usage(usage: Sequence[tenants_pb2.Usage], starts_refused: Mapping[str, int] = {}) -> bytes:
    """What these tenants have used, and how often each was refused by `starts`, in Prometheus' text
    format.
    """
    registry = CollectorRegistry()
    registry.register(_Usage(usage, starts_refused))
    return generate_latest(registry)


def state_name(state: int) -> str:
    """A state of an API server as a label: `idle` for SERVER_STATE_IDLE."""
    return word(control_pb2.ServerState.DESCRIPTOR, state)


def _residence_name(residence: int) -> str:
    return word(control_pb2.Residency.DESCRIPTOR, residence)
