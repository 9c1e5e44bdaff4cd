"""What people are told of work that is not done yet."""

from anabranch.cli.commands.work import COLUMNS, row_of
from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.operation_queries import Work

SINCE_MS = 1_700_000_000_000


def work(**more: object) -> Work:
    fields = {"scope": "s", "stream": "x", "kind": "scale", "step": "make_successors"}
    return Work.model_validate({**fields, "bucket": 3, "since_ms": SINCE_MS, **more})


def test_what_fails_is_shown_with_its_remedy() -> None:
    error = ErrorBody(code="unavailable", message="no store serves it", remedy="start the store")
    row = row_of(work(attempts=4, last_error=error, controller="c-1"))
    assert row == (
        *("s/x", "scale: make_successors", "2023-11-14 22:13:20Z", "4", "c-1"),
        *("no store serves it", "start the store"),
    )
    assert len(row) == len(COLUMNS)


def test_what_waits_is_shown_with_what_it_waits_for() -> None:
    row = row_of(work(stream=None, kind="delete", step="delete_streams", waits_for="3 streams"))
    assert row[0] == "s"
    assert row[3:] == ("–", "nobody yet", "3 streams", "")


def test_a_reader_group_is_told_from_the_stream_of_its_name() -> None:
    row = row_of(work(stream=None, group="x", kind="reset", step="resubscribe"))
    assert row[0] == "s/x (reader group)"
