"""The report of the demo for programs, of as much as there is of an outcome. Pure.

`report.json` holds it. The fields of parts that the demo did not come to, or skipped, are absent.
"""

from collections.abc import Mapping

from anabranch.cli.demo.check import Tally
from anabranch.cli.demo.group_records import GroupOutcome
from anabranch.cli.demo.outcome import Loss, Outcome, Writing
from anabranch.cli.demo.report.page import Page


def record_of(outcome: Outcome, page: Page) -> dict[str, object]:
    """The content of report.json."""
    plan, record = outcome.plan, verdict_of(page)
    record |= {"scales_wanted": plan.scale_count, "crashes_wanted": plan.crash_count}
    if outcome.writing is not None:
        record |= _writing(outcome.writing)
    if outcome.tally is not None:
        record |= reading_record_of(outcome.tally)
        record["read_seconds"] = round(outcome.read_seconds, 3)
    if outcome.writing is not None and outcome.tally is not None:
        days = outcome.writing.days
        record["seconds"] = round(outcome.writing.seconds + outcome.read_seconds, 3)
        record["transactions"] = {
            "committed": days.count, "aborted": days.aborted, "torn": outcome.tally.torn(days),
        }  # fmt: skip
    if outcome.group is not None:
        record["group"] = group_record_of(outcome.group)
        record["group_seconds"] = round(outcome.group_seconds, 3)
    if outcome.http is not None:
        record["http_events"] = outcome.http.read.events
        record["http_row_sum"] = outcome.http.read.row_sum
        record["http_seconds"] = round(outcome.http.seconds, 3)
    if outcome.year is not None:
        record["archive_events"] = outcome.year.archived.events
        record["windows"] = outcome.year.windows
        record["windows_events"] = outcome.year.windows_events
        record["audited_events"] = outcome.year.audited_events
        record["audit_damages"] = list(outcome.year.damages)
        record["year_seconds"] = round(outcome.year.seconds, 3)
    if outcome.spark is not None:
        record["spark_events"] = outcome.spark.read.events
        record["spark_row_sum"] = outcome.spark.read.row_sum
        record["spark_seconds"] = round(outcome.spark.seconds, 3)
        record["parquet_rows"] = outcome.spark.parquet_rows
    if outcome.seconds is not None:
        record["demo_seconds"] = round(outcome.seconds, 3)
    if outcome.segments is not None:
        record["segments"] = outcome.segments
    return {**record, "plots": list(outcome.plots), "environment": dict(page.machine)}


def verdict_of(page: Page) -> dict[str, object]:
    """The verdict, the checks, and the failure if there was one."""
    failure = page.failure
    return {
        "title": page.title,
        "begun": page.begun,
        "passed": page.is_right,
        "verdict": page.verdict,
        "failure": failure
        and {"step": failure.step, "error": failure.text, "remedy": failure.remedy},
        "checks": [
            {"check": check.name, "result": check.result.value.lower(), "found": check.found}
            for check in page.checks
        ],
    }


def _writing(writing: Writing) -> Mapping[str, object]:
    events, loss = len(writing.written.hashes), writing.loss
    return {
        "events_written": events,
        "bytes": writing.written.size_bytes,
        "row_sum": writing.written.sum.row_sum,
        "write_seconds": round(writing.seconds, 3),
        "events_per_s": round(events / writing.seconds),
        "scales": writing.scales,
        "crashes": writing.crashes,
        "longest_pause_seconds": round(writing.pause_s, 3),
        **({} if loss is None else {"loss": _loss(loss)}),
    }


def _loss(loss: Loss) -> Mapping[str, object]:
    return {
        "store": loss.store,
        "containers": loss.containers,
        "takeover_seconds": round(loss.seconds, 3),
        **({} if loss.in_sync_s is None else {"in_sync_seconds": round(loss.in_sync_s, 3)}),
    }


def reading_record_of(tally: Tally) -> Mapping[str, object]:
    """The results of reading everything back with the client."""
    return {
        "events_read": tally.events,
        "duplicates": tally.duplicates,
        "missing": tally.missing,
        "out_of_order": tally.out_of_order,
        "changed": tally.changed,
    }


def group_record_of(group: GroupOutcome) -> dict[str, object]:
    """The results of the group's readers."""
    assert group.kill is not None
    return {
        "events": group.events,
        "missing": group.missing,
        "out_of_order": group.out_of_order,
        "changed": group.changed,
        "segments_moved": group.moved,
        "readers": {
            share.reader_id: {
                "events": share.events,
                "segments": share.segments,
                "segments_taken_over": share.taken_over,
            }
            for share in group.readers
        },
        "killed": group.kill.reader_id,
        "killed_with_segments": len(group.kill.segments),
        "takeover_seconds": round(group.kill.takeover_seconds, 3),
        "processed_twice": group.repeated,
        "processed_twice_of_others": group.repeated_of_others,
        "processed_twice_since_seconds": round(group.repeated_after_s, 3),
        "lag": [{"second": second, "events": events} for second, events in group.lag],
    }
