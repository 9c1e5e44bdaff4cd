"""Command lines about topics and SPUs that run in this process, against objects in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.cli import session
from anabranch.client import Client
from kit.admin_line import Line
from kit.topic_controller import TopicController


class TopicLine(Line):
    """Each command line is a client of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys)
        self.topics = TopicController()
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
