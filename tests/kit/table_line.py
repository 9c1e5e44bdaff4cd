"""Command lines that run in this process, against one controller and one store in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.cli import session
from anabranch.cli.client_session import Session
from anabranch.cli.commands import table_scan
from anabranch.client import Client
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.admin_line import Line
from kit.client_bench import CONNECTION
from kit.fake_admin import AdminController
from kit.fake_control_plane import FakeControlPlane
from kit.fake_segstore import FakeSegmentStore


class TableLine(Line):
    """Each command line is a client of its own; the store keeps its entries between them."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys)
        self.store = FakeSegmentStore()
        self.controller = AdminController(self.store)
        self._clients = 0

    @asynccontextmanager
    async def session(self, _address: str) -> AsyncIterator[Session]:
        self._clients += 1
        control, ids = FakeControlPlane(self.controller), SeededIds(self._clients)
        control.new_command_id = ids.new_id  # type: ignore[method-assign]
        async with (
            self.store,
            Client(
                control,
                clock=SystemClock(),
                ids=ids,
                rng=system_rng(),
                connections=CONNECTION,
            ) as client,
        ):
            yield Session(client)


def table_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, pairs: bool = False
) -> TableLine:
    """With the table plant/latest; `pairs`: it has secondary keys."""
    made = TableLine(capsys)
    monkeypatch.setattr(session, "session_on", made.session)
    monkeypatch.setattr(table_scan, "session_on", made.session)
    made("scope create plant")
    made(f"table create plant/latest --partitions 2 --secondary-key-size {'any' if pairs else 0}")
    return made
