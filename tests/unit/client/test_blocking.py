"""The client for programs that block: calls, iteration, context managers, errors, endings."""

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable

import pytest

import anabranch.client
from anabranch.client import (
    BufferFull,
    Client,
    EventWriter,
    InvalidRequest,
    ScopeNotFound,
    StreamNotFound,
)
from anabranch.client.admin.scopes import Scopes
from anabranch.client.blocking import Blocking
from anabranch.client.blocking.background import THREAD_NAME
from anabranch.client.blocking.calls import Call
from anabranch.common.errors import StreamSealed
from anabranch.common.wire.messages import Appended, Message
from kit.blocking_bench import Waiting, blocking_bench
from kit.client_bench import STREAM, reader_settings, writer_settings
from kit.fake_segstore import Direction, Fault
from kit.short_bench import groups

SETTINGS = reader_settings()


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def hold_acknowledgements(at: Direction, message: Message) -> Fault | None:
    return Fault.HOLD if isinstance(message, Appended) else None


# --- calls --------------------------------------------------------------------------------


def test_what_is_written_is_read_and_values_are_the_same_as_of_the_asynchronous_client() -> None:
    with blocking_bench(segment_count=3) as bench:
        client = bench.client
        with client.writer(STREAM) as writer:
            writer.write(b"first", key="k")
            writer.write_batch(numbered(50), ["k"] * 50)
            writer.flush()
            assert writer.used_bytes == 0
        with client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            events = list(reader)
        assert [event.payload for event in events] == [b"first", *numbered(50)]
        assert {event.key for event in events} == {"k"}


def test_administration_returns_contracts_and_iterators_of_names() -> None:
    with blocking_bench() as bench:
        bench.client.scopes.create("yard")
        bench.client.streams.create("yard/gate", segments=2)
        assert bench.client.streams.describe("yard/gate").segment_count == 2
        assert list(bench.client.streams.list("yard")) == ["gate"]
        assert [*bench.client.scopes.list()] == ["plant", "yard"]
        assert isinstance(bench.client.streams, Blocking)
        assert len(bench.client.streams.current_segments("yard/gate").segments) == 2


def test_a_stand_in_is_passed_on_as_what_it_stands_for() -> None:
    with blocking_bench() as bench:
        waiting = bench.of(Waiting())
        assert waiting.is_self(waiting, again=waiting)
        assert waiting.itself() is waiting
        assert isinstance(waiting.other(), Blocking)


def test_errors_are_the_same_and_their_tracebacks_begin_at_the_caller() -> None:
    with blocking_bench() as bench:
        with pytest.raises(ScopeNotFound):
            bench.client.streams.create("nowhere/gate")
        with pytest.raises(StreamNotFound) as found:
            bench.client.writer("plant/missing").__enter__()
        frames = traceback.extract_tb(found.value.__traceback__)
        assert frames[0].name == inspect.stack()[0].function
        assert frames[-1].filename.endswith("fake_control_plane.py")
        assert not any(frame.name in ("outcome_of", "begin") for frame in frames)


def test_an_event_over_the_buffer_is_refused_in_the_callers_thread() -> None:
    with (
        blocking_bench() as bench,
        bench.client.writer(STREAM, writer_settings(buffer_size_bytes=2000)) as writer,
    ):
        with pytest.raises(BufferFull):
            writer.run(write_without_waiting)
        writer.drain()
        writer.write(b"after")


async def write_without_waiting(writer: EventWriter) -> None:
    for _ in range(100):
        writer.write(b"x" * 100)


def test_many_calls_can_be_made_by_one_way_to_the_loop() -> None:
    async def fill(client: Client) -> int:
        async with client.writer(STREAM) as writer:
            for event in numbered(30):
                writer.write(event)
        return 30

    with blocking_bench() as bench:
        count = bench.client.run(fill)
        assert count == len(bench.on_loop(bench.b.payloads))


def test_methods_keep_their_documentation_and_attributes_are_listed() -> None:
    with blocking_bench() as bench:
        assert bench.client.scopes.create.__doc__ == Scopes.create.__doc__
        assert "scope" in inspect.signature(bench.client.scopes.create).parameters
        assert "create" in dir(bench.client.scopes)
        assert "Client" in repr(bench.client)
        with pytest.raises(AttributeError):
            _ = bench.client.no_such_method


def test_no_class_of_the_client_has_a_member_that_its_stand_in_would_hide() -> None:
    kept = {name for name in vars(Blocking) if not name.startswith("_")}
    assert kept == {"asynchronous", "run", "with_timeout"}
    for name in anabranch.client.__all__:
        own = {"run"} if name == "View" else set()  # a stand-in without work runs the view
        assert kept & set(dir(getattr(anabranch.client, name))) == own, name


def test_calls_of_several_threads_are_answered_each() -> None:
    with blocking_bench() as bench:
        found: list[str] = []

        def work(number: int) -> None:
            bench.client.scopes.create(f"scope-{number}")
            found.append(bench.client.scopes.describe(f"scope-{number}").scope)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [f"scope-{number}" for number in range(8)]


async def test_it_works_where_an_event_loop_turns_already() -> None:
    with blocking_bench() as bench:
        assert [*bench.client.scopes.list()] == ["plant"]


# --- iteration ----------------------------------------------------------------------------


def test_positions_are_those_of_the_event_that_was_given() -> None:
    with blocking_bench() as bench:
        with bench.client.writer(STREAM) as writer:
            writer.write_batch(numbered(30))
        with bench.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            assert [next(reader).payload for _ in range(7)] == numbered(7)
            positions = reader.positions()
        with bench.client.reader(STREAM, positions, until_tail=True, settings=SETTINGS) as reader:
            assert [event.payload for event in reader] == numbered(30)[7:]


def test_a_plain_reader_comes_to_the_loop_once_for_a_block_and_not_for_every_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with blocking_bench() as bench:
        with bench.client.writer(STREAM) as writer:
            writer.write_batch(numbered(500))
        with bench.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            thread = bench.background.thread
            new_call, begun = thread.new_call, list[object]()

            def counted(work: Callable[[], object]) -> Call:
                begun.append(work)
                return new_call(work)

            monkeypatch.setattr(thread, "new_call", counted)
            assert len(list(reader)) == 500
        assert len(begun) < 10


def test_batches_are_given_one_by_one() -> None:
    with blocking_bench() as bench:
        with bench.client.writer(STREAM, writer_settings(block_size_bytes=300)) as writer:
            writer.write_batch(numbered(60))
        with bench.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            payloads = [batch.payloads for batch in reader.batches()]
        assert len(payloads) > 3
        assert [event for batch in payloads for event in batch] == numbered(60)


def test_what_cannot_be_iterated_or_entered_says_so() -> None:
    with blocking_bench() as bench:
        with pytest.raises(TypeError, match="cannot be iterated"):
            iter(bench.client.streams)
        with pytest.raises(TypeError, match="cannot be entered"):
            bench.client.streams.__enter__()
        with pytest.raises(InvalidRequest):
            bench.of(Waiting()).__exit__(None, None, None)


# --- context managers ---------------------------------------------------------------------


def test_a_block_is_entered_and_left_by_one_task_and_is_told_why() -> None:
    waiting = Waiting()
    with blocking_bench() as bench:
        with bench.of(waiting) as entered:
            assert entered.asynchronous is waiting
        with bench.of(waiting):
            raise ValueError
        with pytest.raises(KeyError), bench.of(waiting):
            raise KeyError
    assert waiting.left == [None, ValueError, KeyError]
    for entering, leaving in zip(waiting.tasks[::2], waiting.tasks[1::2], strict=True):
        assert entering is leaving


def test_a_writer_that_is_left_by_an_exception_does_not_wait() -> None:
    with blocking_bench() as bench:
        bench.b.store.fault = hold_acknowledgements
        writer = bench.client.writer(STREAM)
        writer.__enter__()
        writer.write(b"given up")
        writer.__exit__(KeyError, KeyError(), None)
        assert writer.unacknowledged()
        assert writer.failed


def test_a_transaction_without_a_block_is_begun_by_its_first_use() -> None:
    with blocking_bench() as bench, bench.client.writer(STREAM) as writer:
        txn = writer.transaction()
        assert len(txn.id) == 32
        txn.write(b"one")
        txn.commit()
        assert txn.asynchronous.state == "committed"
        with bench.client.transactions(STREAM).begin() as other:
            other.write(b"two")
            other.flush()
        assert other.state == "committed"
        third = writer.transaction()
        with third:
            third.write(b"three")
        assert (third.id, third.state) == ("", "committed")
        bench.b.seal()
        with pytest.raises(StreamSealed):
            writer.transaction().write(b"four")
        assert bench.on_loop(bench.b.payloads) == [b"one", b"two", b"three"]


def test_transactions_are_written_committed_and_aborted_by_plain_blocks() -> None:
    with blocking_bench(segment_count=2) as bench, bench.client.writer(STREAM) as writer:
        with writer.transaction() as txn:
            txn.write(b"one", "k")
            txn.write_batch([b"two", b"three"], ["k", "k"])
            assert bench.on_loop(bench.b.payloads) == []
        assert txn.state == "committed"
        with pytest.raises(KeyError), writer.transaction() as txn:
            raise KeyError
        assert txn.state == "aborted"
        assert len(groups(bench.b)) == 1
        assert bench.on_loop(bench.b.payloads) == [b"one", b"two", b"three"]


def test_parts_of_a_transaction_are_written_by_plain_blocks() -> None:
    with blocking_bench() as bench:
        transactions = bench.client.transactions(STREAM)
        txn = transactions.begin(parts=True)
        with transactions.resume(txn.id) as resumed, resumed.part() as part:
            part.write(b"one")
        assert txn.commit(parts=[part.report()]).state == "committed"
        assert transactions.application("nobody").committed_version is None
        assert bench.on_loop(bench.b.payloads) == [b"one"]


def test_a_block_that_is_never_left_is_left_with_the_client() -> None:
    waiting = Waiting()
    with blocking_bench() as bench:
        bench.of(waiting).__enter__()
    assert waiting.left == [asyncio.CancelledError]


# --- callbacks ----------------------------------------------------------------------------


def test_callbacks_run_in_the_thread_that_waits_and_may_call_the_client() -> None:
    with blocking_bench() as bench:
        found: list[object] = []

        def on_done(name: str) -> str:
            found.extend((name, threading.current_thread(), *bench.client.scopes.list()))
            return "saved"

        assert bench.of(Waiting()).reader(on_done=on_done).finish() == "saved"
        assert found == ["checkpoint", threading.current_thread(), "plant"]


def test_an_error_of_a_callback_is_raised_by_what_called_it() -> None:
    def on_done(name: str) -> None:
        raise OSError("the disk is full")

    with blocking_bench() as bench, pytest.raises(OSError, match="the disk is full"):
        bench.of(Waiting()).reader(on_done=on_done).finish()


def test_an_asynchronous_callback_stays_one() -> None:
    async def on_done(name: str) -> str:
        return threading.current_thread().name

    with blocking_bench() as bench:
        assert bench.of(Waiting()).reader(on_done=on_done).finish() == THREAD_NAME


def test_a_blocking_call_in_the_clients_own_thread_is_refused() -> None:
    with blocking_bench() as bench, pytest.raises(InvalidRequest, match="own thread"):
        bench.on_loop(lambda: bench.client.scopes.describe("plant"))
