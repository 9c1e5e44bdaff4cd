"""The cost of auto-scaling: looks at streams, a store's load reports, and its sketches of keys.

    .venv/bin/python -m bench.scaling_costs

All figures are processor time of one process. A controller makes one look at each idle stream every
ten seconds, and one at each busy stream with every report of its store, at most every two seconds.

The sketches are measured over periods of two seconds, with the appends that a store gets in W1 and
W2 of docs/performance.md, and against the same periods without them. Those workloads themselves are
noisier than the share of the sketches.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from anabranch.common.contracts.load import LoadReport
from anabranch.common.model.division import divided
from anabranch.common.model.hashing import routing_position
from anabranch.common.model.key_range import KeyRange, even_ranges
from anabranch.common.model.names import segment_id, segment_name, stream_ref
from anabranch.common.model.spread import Spread
from anabranch.common.model.stream import ScalingPolicy, ScalingType, SegmentRange
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Stamp
from anabranch.controller.domain.load import ContainerPeriod, ServedSegment, StorePeriod
from anabranch.controller.domain.policies.autoscale import evaluate
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.domain.policies.profile import FAST
from anabranch.controller.domain.policies.spread import spread_of
from anabranch.controller.domain.policies.verdicts import Subject
from anabranch.controller.domain.policies.watch import StreamWatch
from anabranch.segstore.domain.container.operations import AppendOperation
from anabranch.segstore.domain.load.report import ContainerTraffic, Period, encoded, load_report
from anabranch.segstore.domain.load.sketch import POSITION_BITS, SLOTS, Sketch, planned
from anabranch.segstore.domain.load.traffic import Counted, SegmentTraffic, Traffic

STREAMS = 10_000
SEGMENTS = 1_000
ROUNDS = 5
POLICY = ScalingPolicy(ScalingType.EVENT_RATE, 1000, 8, 1)
PERIOD_S = 2.0
WARM_PERIODS = 40
"""Until the sketches are full."""
KEYS = 1_000


@dataclass(frozen=True, slots=True)
class Workload:
    """The appends of W1 or W2: at the rate of its table, in blocks of 256 KiB."""

    name: str
    event_size_bytes: int
    events_per_s: float
    segments: int
    is_keyed: bool

    @property
    def block_events(self) -> int:
        """So many events are 256 KiB."""
        return 256 * 1024 // self.event_size_bytes


WORKLOADS = (
    Workload("W1, 100 B", 100, 3_900_000, 1, is_keyed=False),
    Workload("W1, 1 KiB", 1024, 600_000, 1, is_keyed=False),
    Workload("W2, 100 B", 100, 1_050_000, 16, is_keyed=True),
    Workload("W2, 1 KiB", 1024, 580_000, 16, is_keyed=True),
    Workload("64 segments, 1 KiB", 1024, 580_000, 64, is_keyed=True),
)


def main() -> None:
    """Print the figures."""
    idle_s = _per_call(_looks(STREAMS, 1, is_busy=False))
    _say(f"a sweep over {STREAMS} idle streams of one segment: {idle_s * 1000:.0f} ms, every 10 s")
    busy_s = _per_call(_looks(500, 4, is_busy=True))
    _say(f"looks at 500 busy streams of four segments: {busy_s * 1000:.0f} ms, every 2 s")
    for count in (10, 100, SEGMENTS):
        report_s, parse_s = _report(count)
        _say(
            f"a report of {count} segments: {report_s * 1e6:.0f} µs in the store, "
            f"{parse_s * 1e6:.0f} µs in each controller, every 2 s"
        )
    spread_s, divide_s = _division()
    _say(
        f"a hot segment: {spread_s * 1e6:.0f} µs per look for its sketch, and "
        f"{divide_s * 1e6:.0f} µs once for its division into 8"
    )
    for workload in WORKLOADS:
        _say(_sketches(workload))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _per_call(call: Callable[[], None]) -> float:
    call()
    began_s = time.process_time()
    for _ in range(ROUNDS):
        call()
    return (time.process_time() - began_s) / ROUNDS


def _looks(stream_count: int, segment_count: int, *, is_busy: bool) -> Callable[[], None]:
    refs = [stream_ref(f"bench/stream-{number}") for number in range(stream_count)]
    segments = tuple(
        SegmentRange(segment_id(0, number), keys)
        for number, keys in enumerate(even_ranges(segment_count))
    )
    subject = Subject(1, 0, segments, POLICY)
    names = {ref: [segment_name(ref, one.segment_id) for one in segments] for ref in refs}
    every = [name for of in names.values() for name in of]
    loads = dict.fromkeys(every, (1000, 100_000)) if is_busy else {}
    watches: dict[object, StreamWatch] = {}
    periods: list[StorePeriod] = []

    def round_of_looks() -> None:
        number = len(periods) + 1
        container = ContainerPeriod(1, loads)
        periods.append(StorePeriod("s", number, 2000, True, number * 2.0, {0: container}))
        for ref in refs:
            heard = {
                one.segment_id: Heard("n", periods, ServedSegment(name, 0, 1))
                for one, name in zip(segments, names[ref], strict=True)
            }
            found = evaluate(watches.get(ref), subject, heard, FAST, now_s=number * 2.0)
            watches[ref] = found.watch

    return round_of_looks


def _report(segment_count: int) -> tuple[float, float]:
    counted = Counted(
        tuple(
            SegmentTraffic(f"bench/stream-{number}/0.#epoch.0", 1000, 100_000)
            for number in range(segment_count)
        ),
        complete=True,
    )
    period = Period("node", "s" * 32, 7, 1_700_000_000_000, 2000, 10_000)
    traffic = [ContainerTraffic(0, 1, counted)]
    body = encoded(load_report(period, traffic))
    report_s = _per_call(lambda: _ignored(encoded(load_report(period, traffic))))
    return report_s, _per_call(lambda: _ignored(LoadReport.model_validate_json(body)))


def _division() -> tuple[float, float]:
    """Of a sample of different keys, so that its summary is as long as can be."""
    sketch, whole = Sketch(), KeyRange(0.0, 1.0)
    for number in range(SLOTS):
        position = routing_position(f"key-{number}")
        sketch.note(int(position**2 * 2**POSITION_BITS), 100)
    told = sketch.summary()

    def spread() -> Spread | None:
        return spread_of(told, whole, ScalingType.EVENT_RATE, FAST.halvings_max)

    found = spread()
    divide = partial(divided, whole, 8, found, filled=0.1, halvings_max=FAST.halvings_max)
    return _per_call(lambda: _ignored(spread())), _per_call(lambda: _ignored(divide()))


def _sketches(workload: Workload) -> str:
    plain_s, sketched_s = (
        min(_periods(workload, is_sketched=is_sketched) for _ in range(ROUNDS))
        for is_sketched in (False, True)
    )
    cost_s = (sketched_s - plain_s) / PERIOD_S
    return (
        f"sketches in {workload.name}: {cost_s * 1e3:.2f} ms per second, {cost_s:.2%} of one core; "
        f"counting alone: {plain_s / PERIOD_S:.2%}"
    )


def _periods(workload: Workload, *, is_sketched: bool) -> float:
    """The processor time of one period, with its report."""
    operations = _operations(workload)
    states = {
        number: SegmentState(f"bench/x/{number}.#epoch.0", number, Stamp(1, 1))
        for number in range(workload.segments)
    }
    traffic = Traffic()
    period = Period("node", "s" * 32, 7, 1_700_000_000_000, 2000, 10_000)
    began_s = 0.0
    for number in range(WARM_PERIODS + ROUNDS):
        if number == WARM_PERIODS:
            began_s = time.process_time()
        for operation in operations:
            traffic.add((operation,), states.get)
        flows = traffic.flows(PERIOD_S) if is_sketched else {}
        counted = traffic.take()
        if is_sketched:
            traffic.sketch(planned([flows], PERIOD_S)[0])
        encoded(load_report(period, [ContainerTraffic(0, 1, counted)]))
    return (time.process_time() - began_s) / ROUNDS


def _operations(workload: Workload) -> list[AppendOperation]:
    """The appends of one period, which share some payloads."""
    payloads = [
        [_block(workload, number, first) for first in range(8)]
        for number in range(workload.segments)
    ]
    count = round(workload.events_per_s * PERIOD_S / workload.block_events)
    return [
        AppendOperation(
            number % workload.segments, 0, b"w" * 16, 1, workload.block_events, 0, 0,
            payloads[number % workload.segments][number // workload.segments % 8],
            workload.block_events,
        )
        for number in range(count)
    ]  # fmt: skip


def _block(workload: Workload, segment: int, first: int) -> bytes:
    keys = [
        f"key-{(segment + workload.segments * (first * 7 + number)) % KEYS}".encode()
        for number in range(workload.block_events)
    ]
    return encode_block(
        [b"e" * workload.event_size_bytes] * workload.block_events,
        writer_id=b"w" * 16,
        first_event_number=1,
        base_timestamp_ms=0,
        keys=keys if workload.is_keyed else None,
    )


def _ignored(_value: object) -> None:
    return


if __name__ == "__main__":
    main()
