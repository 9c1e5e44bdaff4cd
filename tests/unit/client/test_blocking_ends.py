"""Waits of a program that blocks which end early, and the ends of its client."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from anabranch.client import (
    Closed,
    TimedOut,
    Unavailable,
    blocking,
)
from anabranch.client.blocking.background import Background
from anabranch.client.blocking.calls import Call
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.wire.messages import Appended, Message
from kit.blocking_bench import Waiting, blocking_bench, thread_count
from kit.client_bench import STREAM, reader_settings
from kit.fake_segstore import Direction, Fault

SETTINGS = reader_settings()


def hold_acknowledgements(at: Direction, message: Message) -> Fault | None:
    return Fault.HOLD if isinstance(message, Appended) else None


class CtrlC(BaseException):
    """What Ctrl-C raises in the thread that waits."""


@pytest.fixture
def press_ctrl_c() -> Iterator[Callable[[], None]]:
    """As if it were pressed: a signal raises in the main thread, in which tests run."""

    def interrupted(number: int, frame: object) -> None:
        raise CtrlC

    before = signal.signal(signal.SIGUSR1, interrupted)
    main = threading.main_thread().ident
    assert main is not None
    yield partial(signal.pthread_kill, main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


# --- waits that end early -----------------------------------------------------------------


def test_a_wait_that_takes_too_long_is_cancelled() -> None:
    waiting = Waiting()
    with blocking_bench() as bench:
        with pytest.raises(TimedOut, match="did not end in time") as late:
            bench.of(waiting, timeout_s=0.01).forever()
        assert isinstance(late.value, TimeoutError)
        assert waiting.cancelled == 1


def test_a_wait_of_no_time_at_all_leaves_nothing_behind() -> None:
    with blocking_bench() as bench:
        for _ in range(20):
            with pytest.raises(TimedOut):
                bench.of(Waiting(), timeout_s=0).forever()


def test_a_reader_goes_on_after_a_wait_that_was_too_short() -> None:
    with blocking_bench() as bench, bench.client.reader(STREAM, settings=SETTINGS) as reader:
        hasty = reader.with_timeout(0.01)
        with pytest.raises(TimedOut):
            next(hasty)
        with bench.client.writer(STREAM) as writer:
            writer.write(b"late")
        assert next(reader.with_timeout(5)).payload == b"late"


def test_a_generator_that_was_interrupted_does_not_pretend_to_be_at_its_end() -> None:
    with blocking_bench() as bench:
        items = bench.of(Waiting(), timeout_s=0.01).items()
        assert next(items) == 1
        with pytest.raises(TimedOut):
            next(items)
        with pytest.raises(Closed, match="was interrupted"):
            next(items)


def test_a_result_that_comes_in_spite_of_the_cancellation_is_returned() -> None:
    with blocking_bench() as bench:
        assert bench.of(Waiting(), timeout_s=0.01).stubborn() == "kept"


def test_ctrl_c_cancels_what_is_waited_for_and_is_raised(press_ctrl_c: Callable[[], None]) -> None:
    waiting = Waiting()
    waiting.on_wait = press_ctrl_c
    with blocking_bench() as bench:
        target = bench.of(waiting)
        with pytest.raises(CtrlC):
            target.forever()
        waiting.on_wait = lambda: None
        assert waiting.cancelled == 1
        assert [*bench.client.scopes.list()] == ["plant"]


def test_an_item_that_comes_in_spite_of_ctrl_c_is_the_next_one(
    press_ctrl_c: Callable[[], None],
) -> None:
    waiting = Waiting()
    waiting.on_wait = press_ctrl_c
    with blocking_bench() as bench:
        target = bench.of(waiting)
        with pytest.raises(CtrlC):
            next(target)
        assert next(target) == "kept"
        assert waiting.cancelled == 1


def test_ctrl_c_while_a_writer_flushes_closes_it(
    press_ctrl_c: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with blocking_bench() as bench:
        bench.b.store.fault = hold_acknowledgements
        writer = bench.client.writer(STREAM)
        writer.__enter__()
        writer.write(b"never acknowledged")
        flush = writer.asynchronous.flush

        async def interrupted() -> None:
            press_ctrl_c()
            await flush()

        monkeypatch.setattr(writer.asynchronous, "flush", interrupted)
        with pytest.raises(CtrlC):
            writer.__exit__(None, None, None)
        assert writer.failed


# --- endings ------------------------------------------------------------------------------


def test_closing_twice_ends_the_thread_and_every_call_after_it_is_refused() -> None:
    before = thread_count()
    with blocking_bench() as bench:
        assert thread_count() == before + 1
        reader = bench.client.reader(STREAM, settings=SETTINGS)
        bench.client.close()
        bench.client.close()
        assert thread_count() == before
        with pytest.raises(Closed):
            bench.client.scopes.describe("plant")
        with pytest.raises(Closed):
            next(reader)


def test_a_call_that_is_under_way_when_another_thread_closes_the_client_ends() -> None:
    with blocking_bench() as bench:
        closing = threading.Timer(0.01, bench.client.close)
        closing.start()
        with pytest.raises(Closed, match="while a call was under way"):
            bench.of(Waiting()).forever()
        closing.join()


def test_a_call_that_the_loop_never_came_to_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with blocking_bench() as bench:
        closing = threading.Thread(target=bench.client.close)

        def lost(call: Call) -> None:
            monkeypatch.undo()
            closing.start()

        monkeypatch.setattr(bench.background.thread, "_submit", lost)
        with pytest.raises(Closed):
            bench.client.scopes.describe("plant")
        closing.join()


def test_a_client_that_nobody_holds_ends_its_thread() -> None:
    background = Background(SystemClock())
    thread = background.thread
    del background
    gc.collect()
    with pytest.raises(Closed):
        thread.perform(lambda: asyncio.Event().wait(), 5.0)
    thread.close()


def test_connecting_to_nobody_raises_and_leaves_no_thread() -> None:
    before = thread_count()
    with pytest.raises(Unavailable):
        blocking.connect("nats://127.0.0.1:1", timeout_s=0.2)
    assert thread_count() == before


def test_a_forked_child_is_told_to_connect_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with blocking_bench() as bench:
        own = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        with pytest.raises(Closed, match="another process"):
            bench.client.scopes.describe("plant")
        bench.client.close()
        monkeypatch.undo()
        assert [*bench.client.scopes.list()] == ["plant"]
