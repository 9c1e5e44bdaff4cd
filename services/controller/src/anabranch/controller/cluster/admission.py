"""The stores that are no members: their records, and why the cluster refuses them.

Owns: the records of refused stores as last seen, and the stores whose SPUs were unregistered while
they ran (`expelled`). `domain/cluster/joining.py` decides. Membership asks it about every record,
and again about all of them when SPUs are registered or unregistered.

The sentences of the log are here, because a store is refused once in each of its sessions.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from anabranch.common.model.cluster import NodeRecord
from anabranch.controller.domain.cluster.joining import (
    Joining,
    Refusal,
    SpuRegistration,
    refusal,
)
from anabranch.controller.domain.cluster.liveness import Timing
from anabranch.controller.domain.cluster.placement_actions import StoreView

Registered = Callable[[], Collection[str] | None]
"""The node ids of the registered SPUs; None until all of them have been seen."""

_REMEDIES = {
    Refusal.NO_TOKEN: "give it the token of the controllers: ANABRANCH_SEGSTORE_JOIN_TOKEN_FILE",
    Refusal.UNREGISTERED: "register an SPU of this name: `anabranch spu register --help`",
}
_WHY = {
    Refusal.NO_TOKEN: "it does not have the join token of the cluster",
    Refusal.UNREGISTERED: "no SPU with its node id is registered",
}

_log = structlog.get_logger(__name__)


def nothing_registered() -> Collection[str] | None:
    """The view of a controller that knows of no SPUs."""
    return None


@dataclass(frozen=True, slots=True)
class Outsider:
    """A refused store. `revision`: of its record. `since_s`: since when this controller refuses it,
    in monotonic seconds; `over_s`: when it first saw that the session is over. `was_member`: it was
    a member before."""

    record: NodeRecord
    revision: int
    why: Refusal
    since_s: float
    was_member: bool
    over_s: float | None = None

    @property
    def ended(self) -> bool:
        """Whether the record says that the session has ended."""
        return self.record.over or self.record.stopped

    @property
    def last_word(self) -> tuple[NodeRecord, int] | None:
        """The record by which a controller ends its session, and the revision that it replaces;
        None: the session has ended, or the record is not to be trusted."""
        if self.ended or self.why is not Refusal.UNREGISTERED:
            return None
        return replace(self.record, over=True, unregistered=True), self.revision

    def view(self, timing: Timing, now_s: float) -> StoreView:
        """The store as placement sees it. It is not live, whatever its record says. Its session is
        over once the record has said so for as long as the store may rely on it."""
        record = self.record
        waited_s = now_s - self.over_s if self.over_s is not None else 0.0
        ended = record.over and not record.unregistered
        return StoreView(
            live=False,
            over=ended or waited_s > timing.dead_after_s(record.lease_s),
            stopped=record.stopped,
            log_home=record.journal_id,
            rack=record.rack,
        )


class Admission:
    """Decides which stores are members. `token`: the secret that stores must prove to have."""

    def __init__(
        self,
        *,
        token: str = "",
        policy: SpuRegistration = "automatic",
        registered: Registered = nothing_registered,
    ) -> None:
        self._token = token
        self.policy: SpuRegistration = policy
        self._registered = registered
        self._expelled: dict[str, str] = {}
        """Node id → the session in which its SPU was unregistered."""
        self._known: frozenset[str] = frozenset()
        """The registered SPUs as of the last `learn`."""
        self._outsiders: dict[str, Outsider] = {}

    @property
    def complete(self) -> bool:
        """Whether the registered SPUs are known as far as decisions need them."""
        return self.policy == "automatic" or self._registered() is not None

    def learn(self, sessions: Mapping[str, str]) -> None:
        """Look at the registered SPUs again. `sessions`: those of the members, by node id."""
        registered = self._registered()
        if registered is None:
            return
        present = frozenset(registered)
        gone = self._known - present
        if len(gone) > 1 and not present:
            _log.error(
                "all registered SPUs are gone at once, so that this looks like lost metadata: "
                "their stores are not expelled",
                spus=sorted(gone),
            )
            gone = frozenset()
        for name in gone & sessions.keys():
            self._expelled[name] = sessions[name]
        for name in present & self._expelled.keys():
            del self._expelled[name]
        self._known = present

    @property
    def outsiders(self) -> Mapping[str, Outsider]:
        """The refused stores, by node id."""
        return self._outsiders

    def of(self, why: Refusal) -> dict[str, Outsider]:
        """The stores that are refused for this reason, by node id."""
        return {name: found for name, found in self._outsiders.items() if found.why is why}

    def views(self, timing: Timing, now_s: float) -> dict[str, StoreView]:
        """The unregistered stores as placement sees them."""
        unregistered = self.of(Refusal.UNREGISTERED)
        return {name: found.view(timing, now_s) for name, found in unregistered.items()}

    def judge(
        self, name: str, record: NodeRecord, revision: int, *, now_s: float, is_member: bool
    ) -> Refusal | None:
        """Whether the store with this record is refused, and why; remembers and logs it.

        `is_member`: whether it has been a member until now.
        """
        before = self._outsiders.get(name)
        if self._expelled.get(name, record.session) != record.session:
            del self._expelled[name]  # its process has been started again
        joining = Joining(self.policy, self._token, self._registered(), self._expelled)
        why = refusal(record, name, joining)
        if why is None:
            self._outsiders.pop(name, None)
            return None
        same = before is not None and before.record.session == record.session
        over_s = before.over_s if same and before is not None else None
        since_s = before.since_s if before is not None else now_s
        was_member = before.was_member if before is not None else is_member
        found = Outsider(record, revision, why, since_s, was_member, over_s)
        if over_s is None and found.ended:
            found = replace(found, over_s=now_s)
        self._outsiders[name] = found
        if before is None or not same or before.why is not why:
            self._log_refused(name, record, why)
        return why

    def forget(self, name: str) -> None:
        """Forget a store whose record is gone or damaged."""
        self._outsiders.pop(name, None)

    def _log_refused(self, name: str, record: NodeRecord, why: Refusal) -> None:
        if not self.complete:
            return  # it is not known yet whether the store is registered
        _log.warning(
            f"refused a segment store, because {_WHY[why]}",
            store=name,
            session=record.session,
            remedy=_REMEDIES[why],
        )
