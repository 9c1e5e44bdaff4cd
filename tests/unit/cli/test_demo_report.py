"""The report of a demo: the page for people, and that every end leaves one."""

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from anabranch.cli.demo.check import Days, RowSum, Tally, Written
from anabranch.cli.demo.command import page_of
from anabranch.cli.demo.group_records import GroupOutcome, Kill, ReaderShare
from anabranch.cli.demo.outcome import (
    Comparison,
    Outcome,
    Plan,
    SparkOutcome,
    Writing,
    YearOutcome,
)
from anabranch.cli.demo.record import record_of
from anabranch.cli.demo.report.html import html_of
from anabranch.cli.demo.report.machine import machine_of
from anabranch.cli.demo.report.page import Check, Failure, Page, Picture, Result, failure_of
from anabranch.cli.demo.report.places import make_directory
from anabranch.cli.demo.report.running import Demo, run_and_report
from anabranch.cli.demo.sensors import Sensors
from anabranch.cli.demo.steps import Steps
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import SystemClock
from kit.golden import assert_golden_text

MACHINE: dict[str, str | int | None] = {
    "python": "3.11.7", "cpu_count": 2, "pyspark": "not installed",
}  # fmt: skip
GROUP = GroupOutcome(
    events=3, missing=0, changed=0, out_of_order=0, repeated=1, repeated_of_others=0,
    repeated_after_s=0.4,
    readers=(ReaderShare("reader-1", 1, 2, 0), ReaderShare("reader-2", 2, 3, 1)),
    kill=Kill("reader-1", 1.0, ("s0",), 3.1), lag=((0.0, 2), (0.25, 0)),
)  # fmt: skip


def recorded(without_spark: str = "") -> Outcome:
    """The outcome of a demo that wrote three rows, of which the client read the last one twice."""
    written, days = Written(), Days()
    for row in range(3):
        written.add(b'{"row":%d}' % row)
    days.add(3)
    tally = Tally(written)
    tally.add([b'{"row":0}', b'{"row":1}', b'{"row":2}', b'{"row":2}'], ["a", "b", "a", "a"])
    plan = Plan(
        source=Sensors(3), data_dir=Path("data"), out=Path("out"), draft_every=5, scale_count=2,
        crash_count=0, draws=True, without_spark=without_spark,
    )  # fmt: skip
    read = RowSum(3, written.sum.row_sum)
    return Outcome(
        plan, "2026-01-02 03:04:05Z", 2500,
        writing=Writing(written, days, 2, 0, 1.5), group=GROUP, group_seconds=2.0, tally=tally,
        read_seconds=0.1, http=Comparison(read, 0.2), segments=5, seconds=9.0,
        year=None if without_spark else YearOutcome(read, 2, 3, 3, (), (Path("windows.png"),), 4.0),
        spark=None if without_spark else SparkOutcome(read, 7, (Path("out/delay.png"),), 3.0),
        pictures=[Picture(Path("out/group_lag.png"), 'The lag of <the "group">')],
    )  # fmt: skip


def test_pictures_in_folders_below_the_page_are_found_from_there() -> None:
    pictures = [Picture(Path("/out/year/windows/windows.png"), "windows")]
    found = html_of(replace(page(recorded()), pictures=pictures), Path("/out"))
    assert 'src="year/windows/windows.png"' in found


def page(outcome: Outcome, failure: Failure | None = None) -> Page:
    return replace(page_of(outcome, failure), machine=MACHINE)


class Outline(HTMLParser):
    """Whether every element is closed, and the addresses that the page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_of_a_recorded_outcome_is_the_golden_one() -> None:
    assert_golden_text("demo_report.html", html_of(page(recorded())))


def test_a_page_closes_its_elements_and_refers_only_to_the_files_beside_it() -> None:
    outline = Outline(html_of(page(recorded())))
    assert outline.open == []
    assert outline.addresses == ["group_lag.png"]


def test_the_verdict_names_failed_and_skipped_checks_and_an_early_end() -> None:
    damaged = page(recorded("omitted by --quick"))
    assert not damaged.is_right
    assert damaged.verdict == (
        "1 of 7 checks failed: every event was read exactly once, unchanged. "
        "Skipped: the same events in Spark's archive and windows, and a healthy audit; "
        "the same events by Spark from tier 2."
    )
    right = replace(damaged, checks=[Check("one", Result.PASSED, "how")])
    assert (right.is_right, right.verdict) == (True, "All checks passed (1).")
    ended = replace(right, failure=Failure("reading back", "it is gone"))
    assert not ended.is_right
    assert ended.verdict == "The demo did not finish: it ended at the step “reading back”."


def test_the_record_has_the_figures_of_the_parts_that_were_reached() -> None:
    outcome = recorded("omitted by --quick")
    record = record_of(outcome, page(outcome))
    assert (record["passed"], record["duplicates"], record["events_written"]) == (False, 1, 3)
    assert record["transactions"] == {"committed": 1, "aborted": 0, "torn": 0}
    assert "spark_events" not in record
    begun = Outcome(outcome.plan, "now", 2500)
    failure = failure_of(Unavailable("it is gone", remedy="wait", store=3), "writing")
    early = record_of(begun, page(begun, failure))
    assert early["failure"] == {
        "step": "writing", "error": "it is gone (store=3)", "remedy": "wait",
    }  # fmt: skip
    assert early.keys().isdisjoint({"events_written", "events_read", "group", "http_events"})
    json.dumps(record)


def test_the_reason_for_an_early_end_is_in_its_own_words() -> None:
    both = BaseExceptionGroup("both", [Unavailable("one", remedy="a"), Unavailable("two")])
    assert failure_of(both, "x") == Failure("x", "one; two", "a; wait and try again")
    assert failure_of(KeyboardInterrupt(), "x").text == "interrupted"
    assert failure_of(ValueError("of no use"), "x") == Failure("x", "ValueError: of no use")


def test_the_machine_is_described_without_its_name() -> None:
    found = machine_of(("msgspec", "no-such-package"))
    assert (found["no-such-package"], found["cpu_count"]) == ("not installed", os.cpu_count())
    described = {"python", "system", "cpu_count", "processor", "memory"}
    assert found.keys() == described | {"msgspec", "no-such-package"}


# --- every end leaves a report ------------------------------------------------------------------


def ran(
    out: Path, raised: BaseException | None = None, result: Result = Result.PASSED
) -> tuple[Callable[[], int], Path, io.StringIO]:
    """A demo of one step, to be run; its data directory, and what it says on the terminal."""
    data, said = out / "cluster-1", io.StringIO()
    make_directory(out)
    data.mkdir()
    console = Console(file=said)
    steps = Steps(console, SystemClock())

    async def work(steps: Steps) -> None:
        async with steps.shown():
            steps.begin("reading back")
            if raised is not None:
                raise raised

    def page(failure: Failure | None) -> Page:
        check = Check("one", result, "how")
        return Page("A demo", "It works.", "now", [check], [], failure=failure)

    demo = Demo("demo", work, page, lambda page: {"passed": page.is_right}, out, data)
    return lambda: run_and_report(demo, steps, console=console, json=False), data, said


def test_after_success_the_data_goes_and_the_last_line_is_the_path_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data, _ = ran(tmp_path)
    assert run() == 0
    assert not data.exists()
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"
    assert json.loads((tmp_path / "report.json").read_text()) == {"passed": True}
    assert "All checks passed (1)." in (tmp_path / "report.html").read_text()


def test_after_a_failed_check_the_data_stays_and_the_exit_code_says_so(tmp_path: Path) -> None:
    run, data, _ = ran(tmp_path, result=Result.FAILED)
    assert run() == 1
    assert data.exists()
    assert "1 of 1 checks failed" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    "raised", [Unavailable("it is gone"), KeyboardInterrupt(), ValueError("x")]
)
def test_an_early_end_is_raised_as_it_was_and_leaves_its_report_and_the_data(
    tmp_path: Path, raised: BaseException
) -> None:
    (tmp_path / "report.json").write_text('{"passed": true, "of": "an earlier demo"}')
    run, data, said = ran(tmp_path, raised)
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        run()
    if not isinstance(raised, KeyboardInterrupt):
        assert isinstance(caught.value, BaseExceptionGroup)
        assert caught.value.exceptions == (raised,)
    assert data.exists()
    assert json.loads((tmp_path / "report.json").read_text()) == {"passed": False}
    text = (tmp_path / "report.html").read_text()
    assert "The demo did not finish: it ended at the step “reading back”." in text
    assert f"report: {tmp_path / 'report.html'}" in said.getvalue().replace("\n", "")


def test_a_demo_begins_without_the_report_of_an_earlier_one(tmp_path: Path) -> None:
    for name in ("report.json", "report.html", "notes.txt"):
        (tmp_path / name).write_text("passed")
    make_directory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_report_that_cannot_be_written_does_not_hide_the_reason_for_it(tmp_path: Path) -> None:
    run, _, _ = ran(tmp_path, Unavailable("no space"))
    (tmp_path / "report.json").mkdir()
    with pytest.raises(BaseExceptionGroup) as caught:
        run()
    assert str(caught.value.exceptions[0]) == "no space"
