"""The lifetime of a service: readiness, the grace after a stop, and errors that end it."""

import asyncio

import pytest

from anabranch.common.errors import DiskFailed, PortInUse, SyncFailed
from anabranch.common.runtime.exit_codes import (
    EXIT_DISK_FAILED,
    EXIT_FAILED,
    EXIT_STOPPED,
    exit_code,
    expected_errors,
)
from anabranch.common.runtime.service import Lifetime, stop_within


def no_deadline(_deadline: asyncio.Timeout) -> None:
    return None


def test_a_lifetime_is_ready_when_every_reported_part_is() -> None:
    lifetime = Lifetime()
    assert not lifetime.ready

    lifetime.set_ready("journal", True)
    lifetime.set_ready("nats", False, "no answer")
    assert not lifetime.ready

    lifetime.set_ready("nats", True)
    assert lifetime.ready


async def test_a_wait_ends_without_its_result_when_the_service_must_stop() -> None:
    lifetime, result = Lifetime(), "missing"
    asyncio.get_running_loop().call_soon(lifetime.request_stop)

    for _ in ("while it waits", "when it begins to wait"):
        async with lifetime.until_stop():
            await asyncio.Event().wait()
            result = "produced"

    assert result == "missing"


async def test_a_wait_of_a_service_keeps_its_result_and_its_errors() -> None:
    lifetime, results = Lifetime(), []

    async def wait_and_fail() -> None:
        async with lifetime.until_stop():
            results.append("produced")
            raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="own"):
        await wait_and_fail()
    lifetime.request_stop()

    assert results == ["produced"]


def test_a_stopping_service_is_not_ready() -> None:
    lifetime = Lifetime()
    lifetime.set_ready("journal", True)

    lifetime.request_stop()

    assert not lifetime.ready
    assert lifetime.parts["process"].reason == "stopping"


async def test_a_main_that_returns_after_the_stop_exits_cleanly() -> None:
    lifetime = Lifetime()

    async def main(given: Lifetime) -> None:
        given.request_stop()
        await given.wait_for_stop()

    assert await stop_within(main, lifetime, no_deadline) == EXIT_STOPPED


async def test_a_main_that_outlives_the_grace_is_cancelled_and_fails() -> None:
    cancelled = asyncio.Event()

    async def main(_given: Lifetime) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def grace_is_over(deadline: asyncio.Timeout) -> None:
        deadline.reschedule(asyncio.get_running_loop().time())

    assert await stop_within(main, Lifetime(), grace_is_over) == EXIT_FAILED
    assert cancelled.is_set()


def test_a_failed_disk_has_an_exit_code_of_its_own() -> None:
    assert exit_code([PortInUse("taken"), DiskFailed("full")]) == EXIT_DISK_FAILED
    assert exit_code([SyncFailed("full")]) == EXIT_DISK_FAILED
    assert exit_code([PortInUse("taken")]) == EXIT_FAILED


async def test_a_timeout_of_main_itself_is_not_taken_for_the_grace() -> None:
    async def main(_given: Lifetime) -> None:
        raise TimeoutError("of the service's own")

    with pytest.raises(TimeoutError, match="own"):
        await stop_within(main, Lifetime(), no_deadline)


def test_a_group_of_named_errors_is_told_from_a_defect() -> None:
    disk, port = DiskFailed("sync failed"), PortInUse("port is taken")

    assert expected_errors(ExceptionGroup("x", [disk, ExceptionGroup("y", [port])])) == [disk, port]
    assert expected_errors(ExceptionGroup("x", [disk, KeyError("defect")])) == []
