"""Pings: one task keeps all open transactions alive, and hears when one has ended."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from anabranch.client import Client, Transactions, TransactionSettings
from anabranch.client.transactions import pings
from anabranch.common.contracts.commands import CreateStream
from anabranch.common.errors import AnabranchError, StreamNotFound, TransactionEnded, Unavailable
from anabranch.common.model.transaction import TransactionState as S
from anabranch.common.runtime.ids import SeededIds
from kit.fake_control_plane import FakeControlPlane
from kit.fake_controller import FakeController
from kit.fake_segstore import FakeSegmentStore
from kit.fake_transactions import FakeTransactions
from kit.rng import seeded
from kit.virtual_time import VirtualClock, run_virtual

LEASE = TransactionSettings(lease_ms=30_000)


@dataclass
class World:
    """Two streams, whose segments nobody writes to, in virtual time."""

    client: Client
    control: FakeControlPlane
    controller: FakeController

    def transactions(self, stream: str = "sensors") -> Transactions:
        return self.client.transactions(f"plant/{stream}")

    @property
    def model(self) -> FakeTransactions:
        return self.controller.transactions

    def pinged(self) -> list[int]:
        """How many transactions each request pinged, of those since the last call."""
        counts = [len(asked.pings) for asked in self.model.pings]
        self.model.pings.clear()
        return counts


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    controller = FakeController(FakeSegmentStore())
    controller.scopes["plant"] = {}
    for stream in ("sensors", "doors"):
        controller.decide(CreateStream(command_id=stream, scope="plant", stream=stream))
    control = FakeControlPlane(controller)
    clock = VirtualClock(asyncio.get_running_loop())
    async with Client(control, clock=clock, ids=SeededIds(1), rng=seeded(1)) as client:
        yield World(client, control, controller)


def in_virtual_time(test: Coroutine[None, None, None]) -> None:
    run_virtual(test)


def test_all_of_a_stream_are_pinged_by_one_request_three_times_in_a_lease() -> None:
    async def scenario() -> None:
        async with world() as w:
            for _ in range(5):
                await w.transactions().begin(LEASE)
            await asyncio.sleep(10)
            assert w.pinged() == [5]
            await asyncio.sleep(300)
            assert set(counts := w.pinged()) == {5}
            assert 30 <= len(counts) <= 38

    in_virtual_time(scenario())


def test_the_shortest_lease_of_a_stream_counts_and_streams_are_apart() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.transactions().begin(LEASE)
            await asyncio.sleep(1)
            await w.transactions().begin(TransactionSettings(lease_ms=3_000))
            await w.transactions("doors").begin(LEASE)
            await asyncio.sleep(1)
            assert [asked.stream for asked in w.model.pings] == ["sensors"]
            await asyncio.sleep(9)
            of_doors = [asked for asked in w.model.pings if asked.stream == "doors"]
            assert [len(asked.pings) for asked in of_doors] == [1]
            assert len(w.model.pings) > 8

    in_virtual_time(scenario())


def test_more_than_a_request_may_name_go_as_several(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with world() as w:
            for _ in range(7):
                await w.transactions().begin(LEASE)
            await asyncio.sleep(10)
            assert w.pinged() == [3, 3, 1]

    monkeypatch.setattr(pings, "PINGS_MAX", 3)
    in_virtual_time(scenario())


def test_what_has_ended_is_told_to_its_writer_and_pinged_no_more() -> None:
    async def scenario() -> None:
        async with world() as w:
            ended = await w.transactions().begin(LEASE)
            kept = await w.transactions().begin(LEASE)
            gone = await w.transactions().begin(LEASE)
            w.model.abort(ended.id)
            del w.model.known[gone.id]
            await asyncio.sleep(10)
            for each, kind in ((ended, TransactionEnded), (gone, AnabranchError)):
                with pytest.raises(kind):
                    each.write(b"late")
            assert ended.state is S.ABORTED
            assert not kept.failed
            w.pinged()
            await asyncio.sleep(10)
            assert w.pinged() == [1]

    in_virtual_time(scenario())


def test_a_stream_that_is_gone_ends_its_transactions() -> None:
    async def scenario() -> None:
        async with world() as w:
            txn = await w.transactions().begin(LEASE)
            del w.controller.scopes["plant"]["sensors"]
            await asyncio.sleep(10)
            with pytest.raises(StreamNotFound):
                txn.write(b"late")

    in_virtual_time(scenario())


def test_a_ping_that_nobody_answers_is_repeated_and_keeps_nobody_else_waiting() -> None:
    async def scenario() -> None:
        async with world() as w:
            ask, away = w.control.query, True

            async def query(name: str, query: object, *rest: object, **how: object) -> object:
                if name == "ping_transactions" and away:
                    if query.stream == "doors":  # type: ignore[attr-defined]
                        await asyncio.Event().wait()
                    raise Unavailable("nobody is there")
                return await ask(name, query, *rest, **how)  # type: ignore[arg-type]

            w.control.query = query  # type: ignore[method-assign, assignment]
            txn = await w.transactions().begin(LEASE)
            await w.transactions("doors").begin(LEASE)
            await asyncio.sleep(25)
            assert w.pinged() == []
            away = False
            await asyncio.sleep(20)
            assert len(w.pinged()) >= 2
            assert not txn.failed

    in_virtual_time(scenario())


def test_that_one_lives_as_long_as_it_may_is_logged_once_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING", "anabranch")

    async def scenario() -> None:
        async with world() as w:
            txn = await w.transactions().begin(LEASE)
            w.model.exceeded.add(txn.id)
            await asyncio.sleep(100)
            assert not txn.failed
            assert len(w.pinged()) > 5
            (told,) = [each.getMessage() for each in caplog.records if txn.id in each.getMessage()]
            assert "has reached its maximum duration" in told

    with caplog.at_level(logging.WARNING):
        in_virtual_time(scenario())


def test_nothing_is_pinged_that_was_closed_committed_or_is_to_be_left_alone() -> None:
    async def scenario() -> None:
        async with world() as w:
            closed = await w.transactions().begin(LEASE)
            await closed.close()
            committed = await w.transactions().begin(LEASE)
            await committed.commit()
            await w.transactions().begin(TransactionSettings(lease_ms=1_000, auto_ping=False))
            await asyncio.sleep(60)
            assert w.pinged() == []
            await w.transactions().begin(LEASE)  # the task begins anew
            await asyncio.sleep(10)
            assert w.pinged() == [1]

    in_virtual_time(scenario())


def test_the_task_ends_with_the_client() -> None:
    async def scenario() -> None:
        before = asyncio.all_tasks()
        async with world() as w:
            await w.transactions().begin(LEASE)
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks() - before) >= 1
        assert asyncio.all_tasks() == before

    in_virtual_time(scenario())
