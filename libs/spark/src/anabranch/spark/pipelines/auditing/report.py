"""The report of an audit, and its lines for people. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.spark.pipelines.auditing.findings import CheckReport, Finding

_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A segment's retained blocks in tier 2. Times are Unix ms of blocks; None without blocks."""

    segment: str
    key_start: float
    key_end: float
    start_offset: int
    end_offset: int
    blocks: int = 0
    events: int = 0
    writers: int = 0
    damages: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    @property
    def stored_bytes(self) -> int:
        """The bytes from head to tail."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream and its segments, in order. `state` as tier 2 describes it."""

    stream: str
    state: str
    epoch: int
    segment_count: int
    events: int
    stored_bytes: int
    segments: tuple[SegmentSummary, ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audited streams, and the outcome of each check. `seconds`: for reading and checking."""

    tier2: str
    healthy: bool
    streams: tuple[StreamSummary, ...]
    blocks: int
    events: int
    stored_bytes: int
    seconds: float
    checks: tuple[CheckReport, ...]
    plots: tuple[str, ...] = ()


def has_damage(report: AuditReport) -> bool:
    """Whether any check found damage."""
    return not report.healthy


def summary(report: AuditReport) -> Sequence[str]:
    """The report as lines for people."""
    return list(_lines(report))


def _lines(report: AuditReport) -> Iterator[str]:
    rate = report.stored_bytes / _MB / max(report.seconds, 0.001)
    yield (
        f"audited {_many(len(report.streams), 'stream')} in {report.tier2}: "
        f"{report.events:,} events in {_many(report.blocks, 'block')}, "
        f"{report.stored_bytes / _MB:,.1f} MB in {report.seconds:.1f} s ({rate:,.0f} MB/s)"
    )
    yield ""
    for check in report.checks:
        yield f"{check.verdict:<10}  {check.name:<12}  {check.property} ({_examined(check)})"
    for check in report.checks:
        if check.findings:
            yield ""
            yield from _found(check)
    yield ""
    for stream in report.streams:
        yield (
            f"{stream.stream}: {stream.state}, epoch {stream.epoch}, "
            f"{_many(stream.segment_count, 'segment')}, {stream.events:,} events, "
            f"{stream.stored_bytes:,} bytes"
        )
    yield from (f"drew {path}" for path in report.plots)
    yield "the streams are healthy" if report.healthy else "the streams are damaged"


def _examined(check: CheckReport) -> str:
    counts = [f"{check.examined:,} {check.examines}"]
    if check.damage_count:
        counts.append(_many(check.damage_count, "damage"))
    if check.notice_count:
        counts.append(_many(check.notice_count, "notice"))
    return ", ".join(counts)


def _found(check: CheckReport) -> Iterator[str]:
    hidden = check.damage_count + check.notice_count - len(check.findings)
    yield f"{check.name}: {check.property}"
    for each in check.findings:
        yield f"  {_place(each)}: {each.text}"
    if hidden > 0:
        yield f"  and {hidden:,} more"
    if check.advice:
        yield f"  remedy: {check.advice}"


def _place(finding: Finding) -> str:
    name = finding.segment or finding.stream or "tier 2"
    return name if finding.offset is None else f"{name} at {finding.offset}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
