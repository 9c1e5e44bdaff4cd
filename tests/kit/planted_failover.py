"""Known bugs of fail-overs, planted on purpose."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from anabranch.common.errors import SessionOver
from anabranch.common.model.cluster import WAITING_FOR_OPERATOR, Placement
from anabranch.controller.cluster.membership import Membership
from anabranch.controller.domain.cluster import placement
from anabranch.controller.domain.cluster.placement_actions import (
    StoreView,
)
from anabranch.segstore.shell.container.lease import SessionLease
from anabranch.segstore.shell.node.session import StoreSession


async def _always(_self: Membership, _store: str) -> bool:
    return True


def stale_after_the_lease() -> AbstractContextManager[object]:
    """A store answers from its memory whether it holds the lease or not."""
    return patch.object(SessionLease, "check", lambda _self: None)


def lease_from_the_confirmation() -> AbstractContextManager[object]:
    """The lease is counted from the moment at which the beat's answer is handled."""
    renewed = SessionLease.renewed

    def renew(self: SessionLease, _sent_s: float) -> None:
        renewed(self, self._clock.monotonic())

    return patch.object(SessionLease, "renewed", renew)


@contextmanager
def given_away_in_a_session() -> Iterator[None]:
    """The controller gives containers of a dead store away, and leaves its session as it is."""

    def fails_over(found: Placement, stores: Mapping[str, StoreView]) -> bool:
        owner = stores.get(found.owner)
        if not found.log_home or owner is None or found.state in WAITING_FOR_OPERATOR:
            return False
        return not owner.live

    with (
        patch.object(placement, "_to_end", lambda *_: iter(())),
        patch.object(placement, "_fails_over", fails_over),
        patch.object(Membership, "is_still_over", _always),
    ):
        yield


def end_of_the_session_ignored() -> AbstractContextManager[object]:
    """A store whose session is over goes on with its containers and its lease."""

    def over(self: StoreSession, session: str, _error: SessionOver) -> None:
        self.id = session

    return patch.object(StoreSession, "over", over)


def former_process_not_awaited() -> AbstractContextManager[object]:
    """A process that takes a node over opens containers while its predecessor may still answer."""
    return patch.object(StoreSession, "wait_for_former", lambda _self, _lease_s: None)


@contextmanager
def journal_container_failed_over() -> Iterator[None]:
    """The controller gives containers away although their log is in a store's own journal."""

    def fails_over(found: Placement, stores: Mapping[str, StoreView]) -> bool:
        owner = stores.get(found.owner)
        waits = found.state in WAITING_FOR_OPERATOR
        return bool(found.log_id) and not waits and owner is not None and not owner.live

    with (
        patch.object(placement, "_fails_over", fails_over),
        patch.object(placement, "shares_log", lambda _found, _view: True),
        patch.object(Membership, "is_still_over", _always),
    ):
        yield


FAILOVER_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "stale read after the lease": stale_after_the_lease,
    "lease counted from the confirmation": lease_from_the_confirmation,
    "given away without ending the session": given_away_in_a_session,
    "end of the session ignored": end_of_the_session_ignored,
    "former process not awaited": former_process_not_awaited,
    "journal container failed over": journal_container_failed_over,
}
