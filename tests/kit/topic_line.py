"""Command lines about topics, SPUs and records that run in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.cli import session
from anabranch.cli.client_session import Session
from anabranch.cli.topics import consume
from anabranch.client import Client
from anabranch.common.model.objects import Computed, TopicSpec
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.admin_line import Line
from kit.client_bench import CONNECTION
from kit.fake_control_plane import FakeControlPlane
from kit.fake_topics import TopicController, TopicStore
from kit.topic_objects import ObjectsController


class TopicLine(Line):
    """Each command line is a client of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys)
        self.topics = ObjectsController()
        self.controller = self.topics

    @asynccontextmanager
    async def client(self, address: str) -> AsyncIterator[Client]:
        async with self.session(address) as opened:
            yield opened.client


def topic_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> TopicLine:
    """With the SPUs 5002 and 5004, which are online, and 5001, which is not."""
    made = TopicLine(capsys)
    monkeypatch.setattr(session, "_client", made.client)
    for spu_id in (5001, 5002, 5004):
        made.topics.register(spu_id, f"store-{spu_id}")
    return made


class RecordLine(Line):
    """Command lines about records; the store keeps them between the lines."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys)
        self.store = TopicStore()
        self.topics = TopicController(self.store)
        self.controller = self.topics  # type: ignore[assignment]
        self._clients = 0

    @asynccontextmanager
    async def session(self, address: str) -> AsyncIterator[Session]:
        async with self.client(address) as opened:
            yield Session(opened)

    @asynccontextmanager
    async def client(self, _address: str) -> AsyncIterator[Client]:
        self._clients += 1
        async with (
            self.store,
            Client(
                FakeControlPlane(self.topics),
                clock=SystemClock(),
                ids=SeededIds(self._clients),
                rng=system_rng(),
                connections=CONNECTION,
            ) as client,
        ):
            yield client


def record_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, partitions: int = 2
) -> RecordLine:
    """With the topic orders."""
    made = RecordLine(capsys)
    monkeypatch.setattr(session, "_client", made.client)
    monkeypatch.setattr(consume, "session_on", made.session)
    made.topics.create("orders", TopicSpec(replicas=Computed(partitions)))
    return made
