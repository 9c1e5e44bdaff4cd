"""What a client remembers of segments and stores does not grow with the time that it lives."""

from typing import Any

import pytest

from anabranch.client.settings import ConnectionSettings
from anabranch.client.wire import control
from anabranch.client.wire.control import ConnectionPool, SegmentDirectory
from anabranch.common.contracts.queries import Locate, Located, SegmentLocation
from anabranch.common.model.cluster import Endpoint
from kit.client_bench import until
from kit.fake_segstore import FakeSegmentStore

SETTINGS = ConnectionSettings(connect_timeout_s=1.0, request_timeout_s=1.0)


class OnePlace:
    """A control plane that places every segment on one store, and counts the questions."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []

    async def query(self, _name: str, query: Locate, _answer: Any, **_more: float) -> Located:
        self.asked += query.segments
        return Located(
            locations=tuple(
                SegmentLocation(
                    segment=segment, container=0, container_epoch=1, host="127.0.0.1",
                    port=self.port, node_id="node",
                )
                for segment in query.segments
            )
        )  # fmt: skip


def segment(number: int) -> str:
    return f"a/b/{number}.#epoch.0"


async def test_a_directory_keeps_the_segments_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LOCATIONS_KEPT_MAX", 3)
    async with FakeSegmentStore(segment(0)) as store:
        asked, pool = OnePlace(store.port), ConnectionPool(SETTINGS)
        directory = SegmentDirectory(asked, pool)  # type: ignore[arg-type]
        for number in range(3):
            await directory.connect(segment(number))
        await directory.connect(segment(0))
        await directory.connect(segment(3))
        asked.asked.clear()

        for number in (0, 2, 3, 1):
            await directory.connect(segment(number))

        assert asked.asked == [segment(1)]
        assert len(directory._known) == 3
        await pool.close()


async def test_a_pool_forgets_connections_to_stores_that_are_gone() -> None:
    pool = ConnectionPool(SETTINGS)
    async with FakeSegmentStore(segment(0)) as gone, FakeSegmentStore(segment(1)) as there:
        lost = await pool.connection_to(Endpoint("127.0.0.1", gone.port))
        kept = await pool.connection_to(Endpoint("127.0.0.1", there.port))

        lost.close()
        await until(lost.ended.done)
        await until(lambda: len(pool._open) == 1)

        assert list(pool._open.values()) == [kept]
        await pool.close()
