"""Command lines that run in this process, against one controller in memory."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.cli import awaiting, session
from anabranch.cli.__main__ import run
from anabranch.cli.client_session import Session
from anabranch.cli.commands import reshape as reshape_commands
from anabranch.client import Client
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.fake_admin import AdminController
from kit.fake_control_plane import FakeControlPlane


class Line:
    """Runs command lines against one controller in memory."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.controller = AdminController()
        self._capsys = capsys
        self.notes = ""

    @asynccontextmanager
    async def session(self, _address: str) -> AsyncIterator[Session]:
        control = FakeControlPlane(self.controller)
        ids = SeededIds(len(self.controller.commanded))
        control.new_command_id = ids.new_id  # type: ignore[method-assign]
        client = Client(control, clock=SystemClock(), ids=ids, rng=system_rng())
        yield Session(client)
        await client.close()

    def __call__(self, text: str, *more: str, code: int = 0) -> str:
        """What it prints, with what goes to stderr in `notes`."""
        ended = run([*text.split(), *more, "--nats", "nats://nowhere"])
        shown = self._capsys.readouterr()
        self.notes = shown.err
        assert ended == code, shown.err
        return shown.out

    def records(self, text: str) -> list[Any]:
        return [json.loads(line) for line in self(f"{text} --json").splitlines()]


def prepared_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    """With the scope plant, and a stream of two segments in it."""
    made = Line(capsys)
    monkeypatch.setattr(session, "session_on", made.session)
    monkeypatch.setattr(awaiting, "LOOK_S", 0.01)
    monkeypatch.setattr(reshape_commands, "POLL_S", 0.01)
    made("scope create plant")
    made("stream create plant/sensors --segments 2")
    return made
