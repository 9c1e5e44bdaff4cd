"""The lease of a store's session: held by confirmed beats, for a time that counts from sending."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from anabranch.common.errors import SessionOver, Unavailable
from anabranch.segstore.shell.container.lease import NO_LEASE, NoSession, SessionLease
from anabranch.segstore.shell.node.session import CLOCK_SPREAD, LEASE_S, StoreSession
from kit.virtual_time import VirtualClock, run_virtual

OVER = SessionOver("this process was declared dead")


class Case:
    """A session, the end of which its open containers were told, and one that joins it."""

    def __init__(self, lease_s: float, group: asyncio.TaskGroup) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.ended: list[SessionOver] = []
        self.session = StoreSession("first", lease_s, clock, self.ended.append)
        self._group = group

    def joining(self) -> asyncio.Task[SessionLease]:
        return self._group.create_task(self.session.joined())


def with_session(
    test: Callable[[StoreSession, Case], Awaitable[None]], lease_s: float = LEASE_S
) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            case = Case(lease_s, group)
            await test(case.session, case)

    run_virtual(main())


def test_a_lease_is_held_for_its_time_after_the_beat_was_sent() -> None:
    async def test(session: StoreSession, _: Case) -> None:
        assert not session.held
        await asyncio.sleep(1.0)
        session.renewed(0.25)
        await asyncio.sleep(LEASE_S - 0.76)
        assert session.held
        await asyncio.sleep(0.02)
        assert not session.held
        with pytest.raises(Unavailable, match="lease"):
            (await session.joined()).check()

    with_session(test)


def test_a_late_confirmation_of_an_older_beat_shortens_no_lease() -> None:
    async def test(session: StoreSession, _: Case) -> None:
        session.renewed(2.0)
        session.renewed(0.0)
        await asyncio.sleep(LEASE_S + 1.0)
        assert session.held

    with_session(test)


def test_no_container_joins_a_session_before_its_first_beat_is_confirmed() -> None:
    async def test(session: StoreSession, case: Case) -> None:
        joining = case.joining()
        await asyncio.sleep(10)
        assert not joining.done()
        session.renewed(10.0)
        await asyncio.sleep(0)
        (await joining).check()

    with_session(test)


def test_the_lease_of_a_session_that_is_over_is_never_held_again() -> None:
    async def test(session: StoreSession, case: Case) -> None:
        session.renewed(0.0)
        former = await session.joined()
        former.check_session()
        session.over("second", OVER)
        assert (session.id, case.ended, session.held) == ("second", [OVER], False)
        joining = case.joining()
        await asyncio.sleep(1)
        assert not joining.done()
        session.renewed(0.5)
        (await joining).check()
        with pytest.raises(Unavailable):
            former.check()
        with pytest.raises(SessionOver):
            former.check_session()

    with_session(test)


def test_a_store_with_its_own_journal_tells_its_containers_nothing_of_its_sessions() -> None:
    async def test(session: StoreSession, case: Case) -> None:
        session.renewed(0.0)
        session.over("second", OVER)
        assert (session.id, case.ended) == ("second", [])
        lease = await NoSession().joined()
        assert lease is NO_LEASE
        lease.check()
        lease.check_session()

    with_session(test, lease_s=0.0)


def test_a_store_that_took_over_opens_nothing_before_the_lease_of_the_former_process_is_over() -> (
    None
):
    async def test(session: StoreSession, case: Case) -> None:
        session.wait_for_former(2.0)
        joining = case.joining()
        await asyncio.sleep(5)
        session.renewed(4.9)
        await asyncio.sleep(2.0 * CLOCK_SPREAD - 0.01)
        assert not joining.done()
        await asyncio.sleep(0.02)
        assert joining.done()

    with_session(test)


def test_the_lease_counts_the_time_for_which_the_machine_was_suspended() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock = VirtualClock(loop)
        lease = SessionLease(clock, LEASE_S)
        lease.renewed(clock.monotonic())
        assert lease.held
        await asyncio.sleep(3600)
        assert not lease.held

    run_virtual(main())
