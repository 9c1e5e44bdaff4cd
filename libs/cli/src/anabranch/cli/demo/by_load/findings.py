"""The checks of the scaling demo, its figures and its record. Pure."""

from collections.abc import Iterator

from anabranch.cli.demo.by_load.outcome import Outcome
from anabranch.cli.demo.by_load.pace import TARGET_RATE
from anabranch.cli.demo.findings import tally_checks
from anabranch.cli.demo.record import reading_record_of, verdict_of
from anabranch.cli.demo.report.page import Check, Measure, Page, checked
from anabranch.cli.figures import counted

_OWN_CAUSES = {"auto-split", "auto-merge"}


def checks_of(outcome: Outcome) -> tuple[Check, ...]:
    """Every check of the demo, in the order of the demo."""
    return (*_scaling_checks(outcome), _time_check(outcome), *tally_checks(outcome.tally))


def _scaling_checks(outcome: Outcome) -> Iterator[Check]:
    known = bool(outcome.epochs)
    most, last = outcome.segments_max, outcome.segments_last
    yield checked(
        "the stream followed its load",
        most > 1 and last == 1 if known else None,
        "It must split under the rush, and have one segment again when it is quiet.",
        f"at most {counted(most, 'segment')}, {counted(last, 'segment')} at the end",
    )
    causes = {epoch.cause.partition(":")[0] for epoch in outcome.epochs[1:]}
    yield checked(
        "the stream scaled by itself",
        causes <= _OWN_CAUSES if known else None,
        "Each epoch names its cause; all of them must be the policy of the stream.",
        ", ".join(sorted(causes)),
    )


def _time_check(outcome: Outcome) -> Check:
    moments = outcome.course.moments
    is_known = any(moment.lower_ms is not None for moment in moments)
    return checked(
        "no event was earlier than the reader's time window",
        is_known and not outcome.late if outcome.tally is not None else None,
        "The writer notes event times. A reader at the tail asks for its time window, and compares "
        "the events that follow with the lower bound.",
        f"{outcome.late:,} earlier" if is_known else "the reader got no window",
    )


def measures_of(outcome: Outcome) -> tuple[Measure, ...]:
    """The figures of all parts that the demo has come to."""
    found: list[Measure] = []
    if outcome.written is not None:
        events = f"{len(outcome.written.hashes):,}"
        found.append(Measure("Load", "events", events, "events"))
        found.append(Measure("Load", "target of one segment", f"{TARGET_RATE:,}", "events/s"))
    if outcome.first_split_s is not None:
        name = "first split after the load exceeded the target"
        found.append(Measure("Scaling", name, f"{outcome.first_split_s:.1f}", "s"))
    for epoch in outcome.epochs:
        seconds = (epoch.created_ms - outcome.epochs[0].created_ms) / 1000
        name = f"epoch {epoch.stream_epoch}, from {seconds:.0f} s ({epoch.cause})"
        unit = "segment" if epoch.segment_count == 1 else "segments"
        found.append(Measure("Scaling", name, f"{epoch.segment_count}", unit))
    if outcome.tally is not None:
        found.append(Measure("Whole demo", "time", f"{outcome.seconds:.1f}", "s"))
    return tuple(found)


def record_of(outcome: Outcome, page: Page) -> dict[str, object]:
    """The content of report.json; the fields of parts that the demo did not come to are absent."""
    record = {**verdict_of(page), "target_rate": TARGET_RATE, "late": outcome.late}
    if outcome.written is not None:
        record["events_written"] = len(outcome.written.hashes)
    if outcome.tally is not None:
        record |= reading_record_of(outcome.tally)
        record["seconds"] = round(outcome.seconds, 3)
    if outcome.epochs:
        record["first_split_seconds"] = outcome.first_split_s
        record["segments_max"] = outcome.segments_max
        record["segments_last"] = outcome.segments_last
    record["epochs"] = [
        {"epoch": one.stream_epoch, "created_ms": one.created_ms,
         "segments": one.segment_count, "cause": one.cause}
        for one in outcome.epochs
    ]  # fmt: skip
    plots = [str(picture.path) for picture in outcome.pictures]
    return {**record, "plots": plots, "environment": dict(page.machine)}
