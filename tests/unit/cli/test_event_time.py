"""The commands that take a time, on a client without a cluster."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.cli.client_session import Session
from anabranch.cli.commands import groups, read, streams
from anabranch.cli.events import ReadRequest
from anabranch.cli.output import Form, Output
from anabranch.client import GroupStream, ReaderGroupConfig
from anabranch.common.errors import InvalidRequest
from kit.client_bench import STREAM, Bench, bench, writer_settings

GROUP = "plant/w"
NOON_MS = 1_763_640_000_000
LATER = "2025-11-20T12:01"

Perform = Callable[[Session, Output], Coroutine[Any, Any, None]]


@asynccontextmanager
async def written() -> AsyncIterator[tuple[Bench, Session]]:
    """A sealed stream with an event at noon and one a minute later."""
    async with bench() as b:
        for minute in range(2):
            for segment in b.segments:
                segment.now_ms = NOON_MS + 60_000 * minute
            async with b.client.writer(STREAM, writer_settings()) as writer:
                writer.write(b"%d" % minute)
        b.seal()
        yield b, Session(b.client)


def taken(monkeypatch: pytest.MonkeyPatch, module: object) -> list[Perform]:
    """What a command would perform."""
    performed: list[Perform] = []
    monkeypatch.setattr(module, "run_with_session", lambda _, perform: performed.append(perform))
    return performed


async def test_reading_starts_at_a_time() -> None:
    async with written() as (_, session):
        found = [
            payload
            async for batch in session.read(STREAM, ReadRequest(LATER, follow=False, count=None))
            for payload in batch.payloads
        ]
    assert found == [b"1"]


def test_read_tells_a_time_from_a_typing_error() -> None:
    read._check_start(str, LATER)
    read._check_start(str, "2025-11-20")
    for text in ("2025-11", "yesterday", "2025"):
        with pytest.raises(ValueError, match="not head, tail, a time or a position"):
            read._check_start(str, text)


async def test_the_cut_at_a_time_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    performed = taken(monkeypatch, streams)
    streams.cut(STREAM, at=LATER)
    async with written() as (b, session):
        (segment,) = b.segments
        for form in (Form.JSON, Form.TABLE):
            await performed[0](session, Output(form))
        first = segment.boundaries[0]
    told, shown = capsys.readouterr().out.split("\n", 1)
    assert json.loads(told) == {
        "stream": STREAM, "basis": "block times", "stream_cut": {"0": first},
    }  # fmt: skip
    assert "block times" in shown
    assert str(first) in shown
    with pytest.raises(InvalidRequest, match="several cuts"):
        streams.cut(STREAM, at=LATER, head=True)


async def test_a_dry_run_of_a_reset_to_a_time_shows_the_bytes_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    performed = taken(monkeypatch, groups)
    groups.reset(GROUP, to_time=LATER, dry_run=True)
    async with written() as (b, session):
        (segment,) = b.segments
        config = ReaderGroupConfig((GroupStream(STREAM),))
        await session.groups.create(GROUP, config, wait_s=5.0)
        for form in (Form.JSON, Form.TABLE):
            await performed[0](session, Output(form))
        assert (await session.groups.config(GROUP)).streams[0].start[0].offset == 0
        await session.groups.reset(
            GROUP, None, to_time_ms=NOON_MS + 60_000, expected_generation=0, wait_s=5.0
        )
        first = segment.boundaries[0]
        assert (await session.groups.config(GROUP)).streams[0].start[0].offset == first
    told, shown = capsys.readouterr().out.split("\n", 1)
    (stream,) = json.loads(told)["streams"]
    assert (stream["again_bytes"], stream["skipped_bytes"]) == (0, first)
    assert stream["target"] == {"0": {"offset": first, "event_index": 0}}
    assert "nothing was changed" in shown


def test_a_reset_has_one_target_and_only_one_to_a_time_has_a_preview() -> None:
    with pytest.raises(InvalidRequest, match="one start"):
        groups.reset(GROUP, to="head", to_time=LATER)
    with pytest.raises(InvalidRequest, match="has a preview"):
        groups.reset(GROUP, to="head", dry_run=True)
