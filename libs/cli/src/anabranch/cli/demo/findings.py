"""The checks of the demo and its figures, of as much as there is of an outcome. Pure."""

from collections.abc import Iterator

from anabranch.cli.demo.check import RowSum, Tally
from anabranch.cli.demo.group_records import GroupOutcome
from anabranch.cli.demo.outcome import Comparison, Loss, Outcome, SparkOutcome, Writing, YearOutcome
from anabranch.cli.demo.report.page import Check, Measure, Result, checked
from anabranch.cli.figures import counted

_SUM = "The count and the sum of the CRC-32 of all events are compared with those written."


def checks_of(outcome: Outcome) -> tuple[Check, ...]:
    """Every check of the demo, in the order of the demo."""
    return (
        *_writing_checks(outcome),
        *_group_checks(outcome),
        *_reading_checks(outcome),
        _compared("the same events over HTTP", outcome, outcome.http, _SUM),
        _year_check(outcome),
        _spark_check(outcome),
    )


def _writing_checks(outcome: Outcome) -> Iterator[Check]:
    plan, writing = outcome.plan, outcome.writing
    yield checked(
        "the stream was scaled while it was written",
        None if writing is None else writing.scales == plan.scale_count,
        "The demo splits and merges segments in turn; the writer gets no notice.",
        "" if writing is None else f"{writing.scales} of {plan.scale_count} scales",
    )
    if plan.crash_count:
        yield checked(
            "the segment store was killed and came back",
            None if writing is None else writing.crashes == plan.crash_count,
            "The demo sends SIGKILL while events are sent and not yet acknowledged.",
            "" if writing is None else f"{writing.crashes} of {plan.crash_count} kills",
        )
    if plan.loses_store:
        yield checked(
            "a store lost its disk, and other stores took over",
            None if writing is None else writing.loss is not None,
            "The demo kills the store with the most containers, deletes its data, and keeps it "
            "down until other stores have opened its containers; the writer gets no notice.",
            "" if writing is None or writing.loss is None else _found_of(writing, writing.loss),
        )


def _found_of(writing: Writing, loss: Loss) -> str:
    copies = ""
    if loss.in_sync_s is not None:
        copies = f"; all copies of the logs in sync again after {loss.in_sync_s:.1f} s"
    return (
        f"{counted(loss.containers, 'container')} opened elsewhere after {loss.seconds:.1f} s; "
        f"the writer's longest pause: {writing.pause_s:.1f} s{copies}"
    )


def _group_checks(outcome: Outcome) -> Iterator[Check]:
    group, lease_s = outcome.group, outcome.lease_ms / 1000
    damage = repeated = ""
    if group is not None:
        damage = (
            f"{group.missing:,} missing, {group.changed:,} changed, "
            f"{group.out_of_order:,} out of order"
        )
        repeated = (
            f"{group.repeated:,} processed twice, {group.repeated_of_others:,} of them first by "
            f"another reader; the earliest {group.repeated_after_s:.1f} s before the kill"
        )
    yield checked(
        "the group of readers lost nothing",
        None if group is None else group.is_right(None),
        "Four processes share the stream and record every batch; one of them is killed. "
        "Their records must hold every event, unchanged, in the order of its key.",
        damage,
    )
    name = "the group repeated no more than the killed reader had in hand"
    how = (
        "Only events that the killed reader had processed, and had not saved yet, may be "
        f"processed again: those of its last {lease_s:g} s, the length of its lease."
    )
    if outcome.plan.crash_count or outcome.plan.loses_store:
        why = "a killed store may make other readers repeat events too"
        yield Check(name, Result.SKIPPED, how, why)
        return
    yield checked(name, None if group is None else group.is_right(lease_s), how, repeated)


def _reading_checks(outcome: Outcome) -> Iterator[Check]:
    tally, torn = outcome.tally, _torn(outcome)
    yield from tally_checks(tally)
    yield checked(
        "every transaction was read whole, aborted ones not at all",
        None if torn is None or tally is None else torn == 0 and tally.changed == 0,
        "Each day is one transaction. For some days the demo first writes a draft and aborts it; "
        "an event of a draft would count as changed.",
        "" if torn is None else f"{torn:,} torn",
    )


def tally_checks(tally: Tally | None) -> Iterator[Check]:
    """The checks on everything that the client reads back; None: it has not read it yet."""
    found = order = ""
    if tally is not None:
        found = (
            f"{tally.missing:,} missing, {tally.duplicates:,} duplicated, {tally.changed:,} changed"
        )
        order = f"{tally.out_of_order:,} out of order"
    yield checked(
        "every event was read exactly once, unchanged",
        None if tally is None else tally.is_whole,
        "The demo keeps a 64-bit hash of each event that it writes, and compares every event that "
        "the client reads with the hash of its row number.",
        found,
    )
    yield checked(
        "the events of each key were read in the order written",
        None if tally is None else tally.out_of_order == 0,
        "The row numbers of each key must ascend, across all scales.",
        order,
    )


def _torn(outcome: Outcome) -> int | None:
    if outcome.tally is None or outcome.writing is None:
        return None
    return outcome.tally.torn(outcome.writing.days)


def _year_check(outcome: Outcome) -> Check:
    name = "the same events in Spark's archive and windows, and a healthy audit"
    how = (
        "Spark archives the stream and counts it by hour and airport while the cluster runs, and "
        f"proves from tier 2 that the stream is whole. {_SUM}"
    )
    if outcome.plan.without_spark:
        return Check(name, Result.SKIPPED, how, outcome.plan.without_spark)
    year = outcome.year
    if year is None or outcome.writing is None:
        return checked(name, None, how)
    wanted = outcome.writing.written.sum
    passed = year.archived == wanted and not year.damages
    passed = passed and year.windows_events == year.audited_events == wanted.events
    found = (
        f"{year.archived.events:,} events archived, {year.windows_events:,} in windows, "
        f"{year.audited_events:,} audited"
    )
    if year.damages:
        found += f"; damaged: {', '.join(year.damages)}"
    return checked(name, passed, how, found)


def _spark_check(outcome: Outcome) -> Check:
    name = "the same events by Spark from tier 2"
    how = f"The cluster is stopped. {_SUM}"
    if outcome.plan.without_spark:
        return Check(name, Result.SKIPPED, how, outcome.plan.without_spark)
    return _compared(name, outcome, outcome.spark, how)


def _compared(
    name: str, outcome: Outcome, found: Comparison | SparkOutcome | None, how: str
) -> Check:
    if found is None or outcome.writing is None:
        return checked(name, None, how)
    return checked(
        name, found.read == outcome.writing.written.sum, how, f"{found.read.events:,} events"
    )


def measures_of(outcome: Outcome) -> tuple[Measure, ...]:
    """The figures of all parts that the demo has come to."""
    found: list[Measure] = []
    if outcome.writing is not None:
        found += _writing_measures(outcome.writing, outcome.segments)
    if outcome.group is not None:
        found += _group_measures(outcome.group)
    if outcome.tally is not None:
        found += _reading_measures("Client", outcome.tally, outcome.read_seconds)
    if outcome.http is not None:
        found += _reading_measures("HTTP", outcome.http.read, outcome.http.seconds)
    if outcome.year is not None:
        found += _year_measures(outcome.year)
    if outcome.spark is not None:
        part = "Spark"
        found += _reading_measures(part, outcome.spark.read, outcome.spark.seconds)
        rows = f"{outcome.spark.parquet_rows:,}"
        found.append(Measure(part, "table of delays per hour and airport", rows, "rows"))
    if outcome.seconds is not None:
        found.append(Measure("Whole demo", "time", f"{outcome.seconds:.1f}", "s"))
    return tuple(found)


def _year_measures(year: YearOutcome) -> Iterator[Measure]:
    part = "Spark, three pipelines"
    yield Measure(part, "archived", f"{year.archived.events:,}", "events")
    yield Measure(part, "windows of an hour and an airport", f"{year.windows:,}", "windows")
    yield Measure(part, "audited", f"{year.audited_events:,}", "events")
    yield Measure(part, "time", f"{year.seconds:.1f}", "s")
    for plot in year.plots:
        yield Measure(part, "plot", str(plot))


def _writing_measures(writing: Writing, segments: int | None) -> Iterator[Measure]:
    part, events = "Writing", len(writing.written.hashes)
    yield Measure(part, "events", f"{events:,}", "events")
    yield Measure(part, "size", f"{writing.written.size_bytes / 1e6:,.1f}", "MB")
    yield Measure(part, "time", f"{writing.seconds:.1f}", "s")
    yield Measure(part, "rate", f"{events / writing.seconds:,.0f}", "events/s")
    yield Measure(part, "committed", f"{writing.days.count:,}", "transactions")
    yield Measure(part, "aborted", f"{writing.days.aborted:,}", "transactions")
    yield Measure(part, "scaled", f"{writing.scales:,}", "times")
    if segments is not None:
        yield Measure(part, "segments at the end", f"{segments:,}", "segments")
    if writing.crashes:
        yield Measure(part, "segment store killed", f"{writing.crashes:,}", "times")
    if writing.loss is not None:
        yield Measure(part, "store that lost its disk", writing.loss.store)
        yield Measure(part, "its containers open elsewhere", f"{writing.loss.seconds:.1f}", "s")
        yield Measure(part, "longest pause of the writer", f"{writing.pause_s:.1f}", "s")
        if writing.loss.in_sync_s is not None:
            seconds = f"{writing.loss.in_sync_s:.1f}"
            yield Measure(part, "all copies of the logs in sync again", seconds, "s")


def _group_measures(group: GroupOutcome) -> Iterator[Measure]:
    part = "Reader group"
    for share in group.readers:
        killed = group.kill is not None and group.kill.reader_id == share.reader_id
        name = f"{share.reader_id}, killed" if killed else share.reader_id
        yield Measure(part, name, f"{share.events:,}", "events")
    yield Measure(part, "segments moved to another reader", f"{group.moved:,}", "times")
    if group.kill is not None:
        yield Measure(part, "takeover after the kill", f"{group.kill.takeover_seconds:.1f}", "s")
    yield Measure(part, "processed twice", f"{group.repeated:,}", "events")


def _reading_measures(part: str, read: Tally | RowSum, seconds: float) -> Iterator[Measure]:
    yield Measure(part, "events", f"{read.events:,}", "events")
    yield Measure(part, "time", f"{seconds:.1f}", "s")
