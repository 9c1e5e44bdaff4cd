"""Short commits under faults: a group is stored once or never, and the writer learns which."""

import asyncio
from collections.abc import Callable

import pytest

from anabranch.client import Transaction
from anabranch.client.transactions import pens as pens_module
from anabranch.client.transactions.committing import REPEATED_S_MAX
from anabranch.client.transactions.pens import PENS_MAX, Pen, Pens
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CorruptBlock,
    OutcomeUnknown,
    PartialDuplicate,
    StreamSealed,
    TransactionEnded,
    Unavailable,
    WrongHost,
)
from anabranch.common.model.names import stream_ref
from anabranch.common.model.transaction import TransactionState as S
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.wire.messages import (
    AppendedTogether,
    AppendTogether,
    BlockPlace,
    Message,
    SetupAppend,
)
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, until, writer_settings
from kit.fake_segstore import Direction, Fault, FaultRule, no_faults
from kit.short_bench import asked, groups, keys_over, numbered

BRIEF = writer_settings(retry_timeout_s=0.05, ack_timeout_s=0.05)


def nth(
    kind: type[Message], faults: dict[int, Fault | AnabranchError], then: Callable[[], None] | None
) -> FaultRule:
    """The faults of the messages of a kind, by their number from 0; after each, `then`."""
    seen = -1

    def rule(at: Direction, message: Message) -> Fault | AnabranchError | None:
        nonlocal seen
        if not isinstance(message, kind):
            return None
        seen += 1
        fault = faults.get(seen)
        if fault is not None and then is not None:
            then()
        return fault

    return rule


# --- repeats ------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [AppendTogether, AppendedTogether])
async def test_a_group_that_gets_lost_is_sent_again_as_it_was(lost: type[Message]) -> None:
    async with bench(segment_count=3, together=True) as b, b.client.writer(STREAM) as writer:
        names, keys = asked(b), keys_over(b, 3)
        b.store.fault = nth(lost, dict.fromkeys(range(4), Fault.DROP), None)
        for number in range(2):
            async with writer.transaction() as txn:
                txn.write_batch(numbered(3, 3 * number), keys=keys)
        sent = groups(b)
        assert len(sent) == 6
        assert len(set(map(repr, sent))) == 2
        assert sent[0].writer_id == sent[5].writer_id
        assert [place.first_event_number for place in sent[5].places] == [2] * 3
        assert set(names) <= {"locate"}
        assert sorted(await b.payloads()) == numbered(6)


@pytest.mark.parametrize("refusal", [Unavailable("not now"), WrongHost("another epoch")])
async def test_a_store_that_does_not_serve_is_asked_again(refusal: AnabranchError) -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        b.store.fault = nth(AppendTogether, {0: refusal, 1: refusal}, None)
        async with writer.transaction() as txn:
            txn.write(b"0")
        assert len(groups(b)) == 3
        assert await b.payloads() == [b"0"]


async def test_a_store_that_restarts_meanwhile_stores_it_once() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        b.store.fault = nth(AppendedTogether, {0: Fault.DROP}, None)
        async with writer.transaction() as txn, asyncio.TaskGroup() as tasks:
            txn.write(b"0")
            commit = tasks.create_task(txn.commit())
            await until(lambda: len(groups(b)) == 1)
            await b.store.restart()
        assert commit.result().state is S.COMMITTED
        assert await b.payloads() == [b"0"]


async def test_a_refusal_for_good_leaves_the_transaction_to_be_aborted() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        b.store.fault = nth(AppendTogether, {0: CorruptBlock("damaged")}, None)
        txn = await writer.transaction().__aenter__()
        txn.write(b"0")
        with pytest.raises(CorruptBlock):
            await txn.__aexit__(None, None, None)
        assert txn.state is S.ABORTED
        async with writer.transaction() as txn:
            txn.write(b"1")
        assert groups(b)[0].writer_id == groups(b)[1].writer_id
        assert await b.payloads() == [b"1"]


# --- unknown outcomes ---------------------------------------------------------------------


async def unknown(txn: Transaction) -> OutcomeUnknown:
    with pytest.raises(OutcomeUnknown) as told:
        await txn.commit()
    assert txn.state is None
    return told.value


@pytest.mark.parametrize("lost", [AppendTogether, AppendedTogether])
async def test_a_commit_that_nobody_answers_is_unknown_until_another_one_learns_it(
    lost: type[Message],
) -> None:
    async with bench() as b, b.client.writer(STREAM, BRIEF) as writer:
        async with writer.transaction() as txn:
            txn.write(b"0")
            b.store.fault = nth(lost, dict.fromkeys(range(1000), Fault.DROP), None)
            error = await unknown(txn)
            (segment,) = b.store.segments
            writer_id = groups(b)[0].writer_id
            assert (error.fields["stream"], error.fields["segment"]) == (STREAM, segment)
            assert error.fields["writer"] == writer_id.hex()
            with pytest.raises(TransactionEnded):
                txn.write(b"1")
            for call in (txn.flush, txn.describe, txn.abort, txn.ping, txn.wait):
                with pytest.raises(OutcomeUnknown):
                    await call()
            b.store.fault = no_faults
            async with writer.transaction() as other:
                other.write(b"2")
            assert groups(b)[-1].writer_id != writer_id
            assert (await txn.commit()).state is S.COMMITTED
            assert groups(b)[-1].writer_id == writer_id
        assert sorted(await b.payloads()) == [b"0", b"2"]


async def test_a_block_whose_commit_nobody_answers_is_left_by_that_and_aborts_nothing() -> None:
    async with bench() as b, b.client.writer(STREAM, BRIEF) as writer:
        b.store.fault = nth(AppendedTogether, dict.fromkeys(range(1000), Fault.DROP), None)
        txn = await writer.transaction().__aenter__()
        txn.write(b"0")
        with pytest.raises(OutcomeUnknown):
            await txn.__aexit__(None, None, None)
        assert txn.state is None
        b.store.fault = no_faults
        assert (await txn.commit()).state is S.COMMITTED
        assert await b.payloads() == [b"0"]


async def test_a_store_that_cannot_be_reached_has_received_nothing() -> None:
    async with bench() as b, b.client.writer(STREAM, BRIEF) as writer:
        txn = await writer.transaction().__aenter__()
        txn.write(b"0")
        await b.store.stop()
        with pytest.raises(Unavailable, match="gave up a commit"):
            await txn.commit()
        assert txn.state is S.OPEN
        await b.store.start()
        txn.write(b"1")
        assert (await txn.commit()).state is S.COMMITTED
        assert await b.payloads() == [b"0", b"1"]


async def test_a_group_is_not_sent_again_after_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b, b.client.writer(STREAM, BRIEF) as writer:
        txn = await writer.transaction().__aenter__()
        txn.write(b"0")
        b.store.fault = nth(AppendedTogether, dict.fromkeys(range(1000), Fault.DROP), None)
        await unknown(txn)
        b.store.fault = no_faults
        count, now = len(groups(b)), writer._runtime.clock.monotonic
        monkeypatch.setattr(
            writer._runtime.clock, "monotonic", lambda: now() + REPEATED_S_MAX, raising=False
        )
        await unknown(txn)
        assert len(groups(b)) == count
        await txn.close()


# --- seals and deletions ------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True])
async def test_a_scale_between_two_transactions_routes_the_second_anew(together: bool) -> None:
    async with bench(segment_count=2, together=together) as b, b.client.writer(STREAM) as writer:
        keys = keys_over(b, 2) if together else ["boiler"]
        for number, count in enumerate((3, 1, 4, 2)):
            async with writer.transaction() as txn:
                txn.write_batch([b"%d" % number] * len(keys), keys=keys)
            assert txn.id == ""
            list(b.scale_to(count))
        assert await b.by_key() == {key: numbered(4) for key in keys}


async def test_a_scale_that_is_half_done_is_waited_for_and_the_group_is_refused_as_a_whole() -> (
    None
):
    async with bench(segment_count=2, together=True) as b, b.client.writer(STREAM) as writer:
        keys = keys_over(b, 2)
        stages = b.scaling([0], [(0.0, 0.25), (0.25, 0.5)])
        while next(stages) != "sealed":
            pass
        async with writer.transaction() as txn, asyncio.TaskGroup() as tasks:
            txn.write_batch(numbered(2), keys=keys)
            commit = tasks.create_task(txn.commit())
            await until(lambda: len(groups(b)) > 1)
            assert not any(segment.data for segment in b.segments)
            list(stages)
        assert commit.result().state is S.COMMITTED
        assert len({each.writer_id for each in groups(b)}) == 1
        assert sorted(await b.payloads()) == numbered(2)


def scale(b: Bench) -> None:
    list(b.scale_to(2))


@pytest.mark.parametrize("lost", [AppendTogether, AppendedTogether])
async def test_a_seal_after_a_lost_copy_neither_repeats_nor_loses_it(lost: type[Message]) -> None:
    async with bench(segment_count=2, together=True) as b, b.client.writer(STREAM) as writer:
        keys = keys_over(b, 2)
        for number in range(3):
            b.store.fault = nth(lost, {0: Fault.DROP}, lambda: scale(b))
            async with writer.transaction() as txn:
                txn.write_batch(numbered(2, 2 * number), keys=keys)
        assert sorted(await b.payloads()) == numbered(6)


async def test_a_stream_that_is_sealed_in_between_takes_nothing() -> None:
    async with bench(segment_count=2, together=True) as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction().__aenter__()
        txn.write_batch(numbered(2), keys=keys_over(b, 2))
        b.store.fault = nth(AppendTogether, {0: Fault.DROP}, b.seal)
        with pytest.raises(StreamSealed):
            await txn.__aexit__(None, None, None)
        assert txn.state is S.ABORTED
        assert await b.payloads() == []


def delete_the_first(b: Bench) -> None:
    """Scale, and truncate what was before."""
    list(b.scale_to(1))
    (present,) = (life.segment_id for life in b.stream.current)
    b.truncate({present: 0})


async def test_a_deleted_segment_is_replaced_while_it_is_clear_that_nothing_was_stored() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"0")
            delete_the_first(b)
        assert txn.state is S.COMMITTED
        assert len(groups(b)) == 2
        assert await b.payloads() == [b"0"]


@pytest.mark.parametrize("lost", [AppendTogether, AppendedTogether])
async def test_a_segment_that_was_deleted_after_a_lost_copy_leaves_the_outcome_unknown(
    lost: type[Message],
) -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction().__aenter__()
        txn.write(b"0")
        b.store.fault = nth(lost, {0: Fault.DROP}, lambda: delete_the_first(b))
        await unknown(txn)
        await unknown(txn)
        assert await b.payloads() == []
        await txn.close()


# --- pens ---------------------------------------------------------------------------------


def forget_writers(b: Bench) -> None:
    for segment in b.segments:
        segment.last_numbers.clear()


async def test_a_pen_that_the_store_has_forgotten_is_replaced_once() -> None:
    async with bench(segment_count=2, together=True) as b, b.client.writer(STREAM) as writer:
        keys = keys_over(b, 2)
        for number in range(3):
            async with writer.transaction() as txn:
                txn.write_batch(numbered(2, 2 * number), keys=keys)
            if number == 0:
                b.segments[0].last_numbers.clear()  # one that has only some of them
        first, refused, renewed, last = groups(b)
        assert first.writer_id == refused.writer_id != renewed.writer_id == last.writer_id
        assert sorted(await b.payloads()) == numbered(6)


async def test_a_pen_that_is_forgotten_after_a_lost_copy_leaves_the_outcome_unknown() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"0")
        txn = await writer.transaction().__aenter__()
        txn.write(b"1")
        b.store.fault = nth(AppendedTogether, {0: Fault.DROP}, lambda: forget_writers(b))
        await unknown(txn)
        assert await b.payloads() == numbered(2)
        await txn.close()


async def test_half_a_group_in_the_store_is_never_completed() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        txn = await writer.transaction().__aenter__()
        txn.write(b"0")
        b.store.fault = nth(AppendTogether, {0: PartialDuplicate("half")}, None)
        await unknown(txn)
        await txn.close()


async def test_a_pen_writes_one_transaction_after_the_other_and_no_more_are_drawn() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        for number in range(5):
            async with b.client.transactions(STREAM).begin() as txn:
                txn.write(b"%d" % number)
            async with writer.transaction() as txn:
                txn.write(b"%d" % number)
        assert len({each.writer_id for each in groups(b)}) == 1
        b.store.fault = nth(AppendedTogether, dict.fromkeys(range(PENS_MAX), Fault.HOLD), None)

        async def transact() -> None:
            async with writer.transaction() as txn:
                txn.write(b"x")

        async with asyncio.TaskGroup() as tasks:
            for _ in range(PENS_MAX + 3):
                tasks.create_task(transact())
            await until(lambda: len(groups(b)) == 10 + PENS_MAX)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(groups(b)) == 10 + PENS_MAX
            b.store.fault = no_faults
            b.store.release()
        assert len({each.writer_id for each in groups(b)}) == PENS_MAX
        assert len(await b.payloads()) == 10 + PENS_MAX + 3


async def test_a_pen_that_does_not_become_free_is_not_waited_for_for_ever() -> None:
    pens = Pens(stream_ref(STREAM), SeededIds(3))
    taken = [await pens.take(1.0) for _ in range(PENS_MAX)]
    with pytest.raises(Busy) as busy:
        await pens.take(0.001)
    assert busy.value.fields["limit"] == PENS_MAX
    pens.drop()
    assert (await pens.take(1.0)).writer_id not in {each.writer_id for each in taken}
    taken[0].last.update({str(number): 1 for number in range(pens_module.SEGMENTS_MAX + 1)})
    pens.give_back(taken[0])
    pens.give_back(taken[1])
    assert await pens.take(1.0) is taken[1]
    assert await pens.take(1.0) is not taken[0]


def test_a_pen_advances_by_what_was_stored_and_by_nothing_else() -> None:
    pen = Pen(bytes(16), {"a": 4})
    pen.advance([BlockPlace("a", 5, 3, 100), BlockPlace("b", 1, 2, 100)])
    assert (pen.next_number("a"), pen.next_number("b"), pen.next_number("c")) == (8, 3, 1)
    with pytest.raises(AssertionError):
        pen.advance([BlockPlace("a", 7, 1, 100)])


# --- cancellation -------------------------------------------------------------------------


@pytest.mark.parametrize("has_trouble", [False, True])
async def test_a_block_that_is_cancelled_anywhere_is_stored_as_a_whole_or_not_at_all(
    has_trouble: bool,
) -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench(segment_count=2, together=True) as b, b.client.writer(STREAM) as writer:
            keys, begun = keys_over(b, 2), list[Transaction]()
            if has_trouble:
                list(b.scale_to(2))
                b.store.fault = nth(AppendedTogether, {0: Fault.DROP}, None)

            async def program() -> None:
                async with writer.transaction() as txn:
                    begun.append(txn)
                    txn.write_batch(numbered(4), keys=keys * 2)

            await cancelling.run(program())
            b.store.fault = no_faults
            state = begun[0].state if begun else S.ABORTED
            if state is None:
                sent = groups(b)[-1:]
                assert (await begun[0].commit()).state is S.COMMITTED
                assert not sent or groups(b)[-1].writer_id == sent[0].writer_id
            expected = numbered(4) if state in (None, S.COMMITTED) else []
            assert sorted(await b.payloads()) == expected
            async with writer.transaction() as txn:
                txn.write_batch(numbered(2, 4), keys=keys)
            assert len(await b.payloads()) == len(expected) + 2

    assert await everywhere(scenario) >= (3 if has_trouble else 1)


async def test_becoming_long_may_be_cancelled_anywhere_and_tried_again() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench(segment_count=2) as b, b.client.writer(STREAM) as writer:
            keys = keys_over(b, 2)

            async def query(*asked: object, **how: object) -> object:
                await asyncio.sleep(0)
                answer: object = await ask(*asked, **how)  # type: ignore[arg-type]
                await asyncio.sleep(0)
                return answer

            ask, b.control.query = b.control.query, query  # type: ignore[assignment]
            async with writer.transaction() as txn:
                txn.write_batch(numbered(4), keys=keys * 2)
                b.client._directory._known.clear()  # so that it looks its segments up
                await cancelling.run(txn.flush())
                is_kept = bool(txn.unacknowledged().get(""))
                assert is_kept is not bool(txn.id)
                left = set() if is_kept else {txn.id}
                pinged = b.client._entered_pings()._lives.values()
                assert {id_ for life in pinged for id_ in life.entries} == left
                txn.write_batch(numbered(2, 4), keys=keys)
            by_key = await b.by_key()
            assert by_key == {
                key: [b"%d" % (n + 2 * i) for i in range(3)] for n, key in enumerate(keys)
            }
            states = [each.state for each in b.controller.transactions.known.values()]
            assert states.count(S.COMMITTED) == 1

    assert await everywhere(scenario) >= 3


# --- what else is on the connection -------------------------------------------------------


async def test_a_short_commit_opens_no_session() -> None:
    async with bench() as b, b.client.writer(STREAM) as writer:
        async with writer.transaction() as txn:
            txn.write(b"0")
        assert not any(isinstance(each, SetupAppend) for each in b.store.requests)
