"""One broken check never takes another one down; findings are shown once per reason."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from anabranch.cli.contexts import Context
from anabranch.cli.doctor.checks import chosen
from anabranch.cli.doctor.examination import Check, Examined, check, examine, has_failed
from anabranch.cli.doctor.finding import CannotLook, Verdict, failure, ok, skipped, warning
from anabranch.cli.doctor.once import Once
from anabranch.cli.doctor.place import Place
from anabranch.cli.doctor.showing import rows_of, show, summary
from anabranch.cli.doctor.sight import sight_of
from anabranch.cli.output import Form, Output
from anabranch.cli.target import Target
from anabranch.common.errors import InvalidRequest, StreamNotFound, Unavailable
from anabranch.common.runtime.clock import SystemClock

CLOCK = SystemClock()


def raising(error: BaseException) -> Callable[[], Awaitable[int]]:
    async def gather() -> int:
        raise error

    return gather


async def seven() -> int:
    return 7


def checks(*gathers: Callable[[], Awaitable[int]]) -> list[Check]:
    return [
        check(f"check-{number}", "a number", gather, lambda found: ok(f"{found}"))
        for number, gather in enumerate(gathers)
    ]


async def test_a_remedy_is_in_the_words_of_the_command() -> None:
    (found,) = await examine(checks(raising(StreamNotFound("no such", stream="a/b"))), CLOCK)
    assert "anabranch stream list a" in found.finding.remedy


@pytest.mark.parametrize(
    ("error", "verdict", "words"),
    [
        (CannotLook("it is elsewhere", "go there"), Verdict.SKIPPED, "it is elsewhere"),
        (Unavailable("no answer", url="x"), Verdict.FAILURE, "no answer (url=x)"),
        (PermissionError(13, "Permission denied", "/x"), Verdict.FAILURE, "Permission denied (/x)"),
        (KeyError("surprise"), Verdict.FAILURE, "it failed unexpectedly: KeyError: 'surprise'"),
    ],
)
async def test_whatever_a_check_raises_is_the_finding_of_that_check_alone(
    error: Exception, verdict: Verdict, words: str
) -> None:
    found = await examine(checks(raising(error), seven), CLOCK)
    assert [one.finding.verdict for one in found] == [verdict, Verdict.OK]
    assert found[0].finding.text == words
    assert found[1].finding.text == "7"


async def test_a_check_that_hangs_fails_at_its_deadline() -> None:
    async def hang() -> int:
        await asyncio.Event().wait()
        return 0

    found = await examine(checks(hang, seven), CLOCK, seconds_max=0.001)
    assert [one.finding.verdict for one in found] == [Verdict.FAILURE, Verdict.OK]
    assert "no answer in time" in found[0].finding.text


async def test_a_source_is_asked_once_also_if_it_fails() -> None:
    asked = []

    async def fail() -> int:
        asked.append(1)
        raise Unavailable("no answer")

    source = Once(fail)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await source()
    assert asked == [1]


def examined() -> list[Examined]:
    findings = {
        "a": ok("fine", size_bytes=1),
        "b": skipped("out of reach", "go there"),
        "c": warning("slow", "buy a disk"),
        "d": skipped("out of reach", "go there"),
        "e": skipped("other", ""),
    }
    return [Examined(name, "about", finding, 1) for name, finding in findings.items()]


def test_checks_that_are_skipped_for_one_reason_share_a_row() -> None:
    assert rows_of(examined()) == [
        ("ok", "a", "fine"),
        ("warning", "c", "slow\n→ buy a disk"),
        ("skipped", "2 checks", "out of reach: b, d\n→ go there"),
        ("skipped", "e", "other"),
    ]
    assert summary(examined()) == "5 checks: 1 ok, 1 warning, 0 failures, 3 skipped"


def test_programs_get_a_record_per_check_and_warnings_are_no_failure() -> None:
    out = io.StringIO()
    show(Output(Form.JSON, out), examined())
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [record["check"] for record in records] == ["a", "b", "c", "d", "e"]
    assert records[0]["figures"] == {"size_bytes": 1}
    assert not has_failed(examined())
    assert has_failed([*examined(), Examined("f", "", failure("broken", "mend it"), 1)])


def test_single_checks_can_be_chosen_by_name() -> None:
    every = checks(seven, seven)
    assert chosen(every, []) == every
    assert chosen(every, ["check-1"]) == every[1:]
    with pytest.raises(InvalidRequest) as wrong:
        chosen(every, ["check-9"])
    assert "check-0, check-1" in wrong.value.remedy


async def test_the_document_names_every_check() -> None:
    document = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    place = Place(Target(Context(nats="nats://h"), ""), None)
    async with sight_of(place, {}, CLOCK) as sight:
        names = [one.name for one in sight.checks]
    assert [name for name in names if f"`{name}`" not in document] == []
    assert len(set(names)) == len(names)
    assert f"{len(names)} checks: " in document
