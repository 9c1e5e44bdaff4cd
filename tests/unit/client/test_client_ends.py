"""What leaving a client does, whatever becomes of what is open in it."""

import asyncio

import pytest

from anabranch.client.runtime import Runtime
from anabranch.common.errors import Closed, OutcomeUnknown
from kit.client_bench import STREAM, Bench, bench


class Part:
    """Something open that notes its closing, or fails in it."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True
        if self.failure is not None:
            raise self.failure


def runtime_of(b: Bench) -> Runtime:
    runtime = b.client._runtime
    assert runtime is not None
    return runtime


async def fails() -> None:
    raise ZeroDivisionError


async def test_a_part_that_fails_to_close_keeps_no_other_one_open() -> None:
    first, second = Part(), Part(OutcomeUnknown("some events"))
    before = asyncio.all_tasks()

    async def use() -> None:
        async with bench() as b:
            runtime_of(b).open_parts.add(first)
            await b.client.writer(STREAM).__aenter__()
            runtime_of(b).open_parts.add(second)

    with pytest.raises(OutcomeUnknown, match="some events"):
        await use()
    assert first.is_closed
    assert second.is_closed
    assert asyncio.all_tasks() == before


async def test_a_defect_in_the_background_is_raised_and_not_what_follows_from_it() -> None:
    """Also when something cannot be closed any more because of it."""
    late = Part(Closed("too late"))

    async def use() -> None:
        async with bench() as b:
            runtime_of(b).open_parts.add(late)
            runtime_of(b).start(fails())
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as raised:
        await use()
    assert raised.value.subgroup(ZeroDivisionError) is not None


async def test_nothing_is_begun_in_a_client_in_which_something_failed() -> None:
    refused = asyncio.Event()

    async def use() -> None:
        async with bench() as b:
            runtime = runtime_of(b)
            runtime.start(fails())
            try:
                await asyncio.Event().wait()
            finally:
                with pytest.raises(Closed, match="because of a failure"):
                    runtime.start(fails())
                refused.set()

    with pytest.raises(BaseExceptionGroup):
        await use()
    assert refused.is_set()
