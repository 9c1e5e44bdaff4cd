"""Carried commits of one client that share a submission: each is stored once or not at all, and its
writer learns which, whatever happens to the others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import pytest

from anabranch.client import EventWriter, Transaction, TransactionSettings
from anabranch.common.contracts.transactions import CommitEvents
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CorruptBlock,
    OutcomeUnknown,
    StreamSealed,
    Unavailable,
)
from anabranch.common.model.transaction import CARRIED_SIZE_BYTES_MAX, drawn_ms
from anabranch.common.model.transaction import TransactionState as S
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, until, writer_settings
from kit.short_bench import keys_over

BRIEF = writer_settings(retry_timeout_s=0.05, ack_timeout_s=0.05)
Gate = Callable[[CommitEvents], AnabranchError | None]


class Door:
    """Where submissions arrive. `shut` lets them wait, `answer` may refuse one, and `loses` tells
    whether the answer of a stored one gets lost."""

    def __init__(self, b: Bench) -> None:
        self.arrived: list[CommitEvents] = []
        self._gate: asyncio.Event | None = None
        self.answer: Gate = lambda _query: None
        self.loses: Callable[[], bool] = lambda: False
        self._real = b.control.query
        b.control.query = self._query  # type: ignore[method-assign, assignment]

    async def _query(self, name: str, query: CommitEvents, *rest: object, **how: object) -> object:
        if name != "commit_events":
            return await self._real(name, query, *rest, **how)  # type: ignore[arg-type]
        self.arrived.append(query)
        if self._gate is not None:
            await self._gate.wait()
        if (error := self.answer(query)) is not None:
            raise error
        done: object = await self._real(name, query, *rest, **how)  # type: ignore[arg-type]
        if self.loses():
            raise Unavailable("the answer is lost")
        return done

    def hold(self) -> asyncio.Event:
        """Let what arrives from now on wait for this event."""
        self._gate = asyncio.Event()
        return self._gate

    @contextmanager
    def shut(self) -> Iterator[None]:
        gate = self.hold()
        yield
        gate.set()

    @property
    def counts(self) -> list[int]:
        """The number of transactions in each request: each has two events of nine bytes."""
        return [sum(each.block.count(b"event") for each in one.blocks) // 2 for one in self.arrived]


@asynccontextmanager
async def writing(brief: bool = False) -> AsyncIterator[tuple[Bench, EventWriter, Door]]:
    """A writer over two segments, whose client knows the controllers' time."""
    settings = BRIEF if brief else writer_settings()
    async with bench(segment_count=2) as b, b.client.writer(STREAM, settings) as writer:
        async with writer.transaction() as txn:
            txn.write_batch([b"first", b"first"], keys=keys_over(b, 2))
        yield b, writer, Door(b)


async def opened(
    b: Bench, writer: EventWriter, count: int, settings: TransactionSettings | None = None
) -> list[Transaction]:
    """So many transactions, each with one event in both segments."""
    found = []
    for number in range(count):
        txn = await writer.transaction(settings or TransactionSettings()).__aenter__()
        txn.write_batch([b"event %03d" % number] * 2, keys=keys_over(b, 2))
        found.append(txn)
    return found


async def stored(b: Bench) -> list[int]:
    """The numbers of the transactions that the stream has, sorted; each has both events."""
    payloads = sorted(each for each in await b.payloads() if each.startswith(b"event"))
    assert payloads[::2] == payloads[1::2]
    return [int(each.split()[1]) for each in payloads[::2]]


async def outcome_of(txn: Transaction) -> object:
    try:
        await txn.commit()
    except (AnabranchError, ValueError) as error:
        return type(error)
    return "ok"


def outcomes(commits: Sequence[asyncio.Task[object]]) -> list[object]:
    return ["cancelled" if each.cancelled() else each.result() for each in commits]


class Committing(asyncio.TaskGroup):
    """Commits side by side."""

    def all(self, transactions: Sequence[Transaction]) -> list[asyncio.Task[object]]:
        return [self.create_task(outcome_of(each)) for each in transactions]


async def commit_all(door: Door, transactions: Sequence[Transaction]) -> list[object]:
    """Commit all, the others while the request of the first one is under way."""
    async with Committing() as group:
        with door.shut():
            commits = group.all(transactions)
            await until(lambda: len(door.arrived) == 1)
    return outcomes(commits)


async def end(transactions: Sequence[Transaction]) -> None:
    for each in transactions:
        await each.close()


async def test_commits_that_begin_meanwhile_share_the_next_request() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 5)
        assert await commit_all(door, transactions) == ["ok"] * 5
        assert door.counts == [1, 4]
        assert await stored(b) == list(range(5))
        ids = [each.transaction_id for each in door.arrived]
        assert [each.id for each in transactions] == [ids[0]] + ids[1:] * 4
        assert {each.state for each in transactions} == {S.COMMITTED}


async def test_one_after_another_they_share_nothing() -> None:
    async with writing() as (b, writer, door):
        for each in await opened(b, writer, 3):
            await each.commit()
        assert door.counts == [1, 1, 1]
        assert len({each.transaction_id for each in door.arrived}) == 3


async def test_those_with_another_label_or_without_wait_go_apart_and_at_once() -> None:
    async with writing() as (b, writer, door):
        plain = await opened(b, writer, 3)
        (labelled,) = await opened(b, writer, 1, TransactionSettings(writer="tills"))
        async with Committing() as group:
            with door.shut():
                group.all([*plain[:2], labelled])
                await until(lambda: len(door.arrived) == 2)
                group.create_task(plain[2].commit(wait=False))
                await until(lambda: len(door.arrived) == 3)
        assert door.counts == [1, 1, 1, 1]
        assert [each.writer for each in door.arrived].count("tills") == 1
        assert len({each.id for each in [*plain, labelled]}) == 4


async def test_more_than_a_request_carries_goes_into_the_next_one() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 4)
        for each in transactions[1:]:
            each.write_batch([b"x" * (CARRIED_SIZE_BYTES_MAX // 5 * 2)], keys=keys_over(b, 1))
        assert await commit_all(door, transactions) == ["ok"] * 4
        assert door.counts == [1, 2, 1]
        sizes = [sum(len(block.block) for block in each.blocks) for each in door.arrived]
        assert max(sizes) <= CARRIED_SIZE_BYTES_MAX


# --- one bad among good ones ----------------------------------------------------------------------


async def test_a_refused_one_does_not_harm_the_others() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 4)

        def refuse(query: CommitEvents) -> AnabranchError | None:
            is_bad = any(b"event 002" in each.block for each in query.blocks)
            return CorruptBlock("damaged") if is_bad else None

        door.answer = refuse
        assert await commit_all(door, transactions) == [
            "ok",
            "ok",
            CorruptBlock,
            "ok",
        ]
        assert door.counts == [1, 3, 1, 1, 1]
        assert await stored(b) == [0, 1, 3]
        assert transactions[2].state is S.OPEN
        door.answer = lambda _query: None
        await transactions[2].commit()
        assert await stored(b) == [0, 1, 2, 3]


async def test_a_sealed_stream_refuses_all() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 3)
        door.answer = lambda _query: StreamSealed("sealed")
        assert await commit_all(door, transactions) == [StreamSealed] * 3
        assert {each.state for each in transactions} == {S.OPEN}
        await end(transactions)


async def test_a_defect_in_one_call_does_not_harm_the_others() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 4)
        defects = [None, ValueError("nobody expected this")]

        def fail_once(_query: CommitEvents) -> AnabranchError | None:
            if defects and (defect := defects.pop(0)) is not None:
                raise defect
            return None

        door.answer = fail_once
        assert await commit_all(door, transactions) == [
            "ok",
            ValueError,
            "ok",
            "ok",
        ]
        assert (await transactions[1].commit()).state is S.COMMITTED
        assert await stored(b) == list(range(4))


# --- no answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("are_stored", [False, True])
async def test_without_an_answer_all_are_unknown_until_one_asks_again(are_stored: bool) -> None:
    async with writing(brief=True) as (b, writer, door):
        transactions = await opened(b, writer, 4)
        door.loses = lambda: len(door.arrived) > 1 and are_stored
        lost = Unavailable("no controller")
        door.answer = lambda _query: lost if len(door.arrived) > 1 and not are_stored else None
        assert await commit_all(door, transactions) == ["ok", *[OutcomeUnknown] * 3]
        assert {each.state for each in transactions[1:]} == {None}
        door.answer, door.loses = lambda _query: None, lambda: False
        for each in transactions[1:]:
            assert (await each.commit()).state is S.COMMITTED
        assert len({each.id for each in transactions[1:]}) == 1
        assert await stored(b) == list(range(4))


async def test_an_unknown_outcome_is_learnt_while_another_submission_is_under_way() -> None:
    async with writing(brief=True) as (b, writer, door):
        transactions = await opened(b, writer, 2)
        door.loses = lambda: True
        assert await outcome_of(transactions[0]) is OutcomeUnknown
        door.loses = lambda: False
        count = len(door.arrived)
        async with Committing() as group:
            with door.shut():
                group.all(transactions[1:])
                await until(lambda: len(door.arrived) == count + 1)
                first = group.all(transactions[:1])
                await until(lambda: len(door.arrived) == count + 2)
        assert outcomes(first) == ["ok"]
        assert await stored(b) == [0, 1]


async def test_a_turn_that_does_not_come_leaves_them_open() -> None:
    async with writing(brief=True) as (b, writer, door):
        transactions = await opened(b, writer, 3)
        async with Committing() as group:
            with door.shut():
                commits = group.all(transactions)
                await asyncio.wait(commits[1:])
                assert outcomes(commits[1:]) == [Busy] * 2
                assert [each.state for each in transactions[1:]] == [S.OPEN] * 2
        for each in transactions:
            await each.commit()
        assert await stored(b) == list(range(3))
        assert door.counts == [1, 1, 1]


# --- cancellation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_whichever_is_cancelled_the_others_commit(which: int) -> None:
    async def work(cancelling: Cancelling) -> None:
        async with writing() as (b, writer, door):
            transactions = await opened(b, writer, 4)
            async with Committing() as group:
                with door.shut():
                    commits = group.all(transactions[3:])
                    await until(lambda: len(door.arrived) == 1)
                    commits += group.all(transactions[:which])
                    group.create_task(cancelling.run(transactions[which].commit()))
                    await asyncio.sleep(0)
                    commits += group.all(transactions[which + 1 : 3])
                    await asyncio.sleep(0)
            assert outcomes(commits) == ["ok"] * 3
            await none_is_lost(b, transactions)

    await everywhere(work)


async def none_is_lost(b: Bench, transactions: Sequence[Transaction]) -> None:
    for number, each in enumerate(transactions):
        if each.state is not None:
            assert (number in await stored(b)) is (each.state is S.COMMITTED)
        assert (await each.commit()).state is S.COMMITTED
    assert await stored(b) == list(range(len(transactions)))


async def test_one_that_is_cancelled_before_its_turn_is_not_sent() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 4)
        async with Committing() as group:
            with door.shut():
                commits = group.all(transactions)
                await until(lambda: len(door.arrived) == 1)
                commits[1].cancel()  # it waits for the turn of all three
        assert outcomes(commits) == ["ok", "cancelled", "ok", "ok"]
        assert (transactions[1].state, door.counts) == (S.OPEN, [1, 2])
        await transactions[1].abort()
        assert await stored(b) == [0, 2, 3]


async def test_one_that_is_cancelled_in_a_refused_submission_may_commit_again() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 3)
        async with Committing() as group:
            with door.shut():
                commits = group.all(transactions)
                await until(lambda: len(door.arrived) == 1)
                held = door.hold()
            await until(lambda: len(door.arrived) == 2)
            commits[2].cancel()
            await asyncio.wait(commits[2:])
            assert transactions[2].state is None
            door.answer = lambda query: CorruptBlock("one of them") if is_shared(query) else None
            held.set()
        assert outcomes(commits) == ["ok", "ok", "cancelled"]
        assert (await transactions[2].commit()).state is S.COMMITTED
        assert await stored(b) == list(range(3))
        assert door.counts == [1, 2, 1, 1]


async def test_one_that_is_cancelled_as_the_others_learn_the_outcome_is_not_stored_twice() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 3)
        async with Committing() as group:
            with door.shut():
                commits = group.all(transactions)
                await until(lambda: len(door.arrived) == 1)
                commits[1].add_done_callback(lambda _performer: commits[2].cancel())
        assert outcomes(commits) == ["ok", "ok", "cancelled"]
        assert transactions[2].state is None
        await none_is_lost(b, transactions)
        assert transactions[1].id == transactions[2].id


async def test_all_that_are_cancelled_ask_again_for_the_same_submission() -> None:
    async with writing() as (b, writer, door):
        transactions = await opened(b, writer, 4)
        async with Committing() as group:
            with door.shut():
                commits = group.all(transactions)
                await until(lambda: len(door.arrived) == 1)
                held = door.hold()
            await until(lambda: len(door.arrived) == 2)
            for each in reversed(commits[1:]):
                each.cancel()
        held.set()
        assert outcomes(commits) == ["ok", *["cancelled"] * 3]
        assert [each.state for each in transactions[1:]] == [None] * 3
        await none_is_lost(b, transactions)
        assert len({each.id for each in transactions[1:]}) == 1


def is_shared(query: CommitEvents) -> bool:
    return sum(each.block.count(b"event") for each in query.blocks) > 2


async def test_a_client_without_the_time_learns_it_for_all() -> None:
    async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
        door = Door(b)
        transactions = await opened(b, writer, 4)
        async with Committing() as group:
            commits = group.all(transactions)
        assert outcomes(commits) == ["ok"] * 4
        have_time = [bool(drawn_ms(each.transaction_id)) for each in door.arrived]
        assert have_time == [False, True, True]
        assert await stored(b) == list(range(4))
