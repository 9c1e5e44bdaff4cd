"""The cost of auto-scaling: a look at every stream, and a store's load report.

    .venv/bin/python -m bench.scaling_costs

All figures are processor time of one process. A controller makes one look at each idle stream every
ten seconds, and one at each busy stream with every report of its store, at most every two seconds.
"""

import sys
import time
from collections.abc import Callable

from anabranch.common.contracts.load import LoadReport
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import segment_id, segment_name, stream_ref
from anabranch.common.model.stream import ScalingPolicy, ScalingType, SegmentRange
from anabranch.controller.domain.load import ContainerPeriod, ServedSegment, StorePeriod
from anabranch.controller.domain.policies.autoscale import evaluate
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.domain.policies.profile import FAST
from anabranch.controller.domain.policies.verdicts import Subject
from anabranch.controller.domain.policies.watch import StreamWatch
from anabranch.segstore.domain.load.report import ContainerTraffic, Period, encoded, load_report
from anabranch.segstore.domain.load.traffic import Counted, SegmentTraffic

STREAMS = 10_000
SEGMENTS = 1_000
ROUNDS = 5
POLICY = ScalingPolicy(ScalingType.EVENT_RATE, 1000, 8, 1)


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


def _ignored(_value: object) -> None:
    return


if __name__ == "__main__":
    main()
