"""Known bugs of replicated logs, planted on purpose."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import patch

from anabranch.common.model.cluster import LogCopy, Placement
from anabranch.controller.domain.cluster import election
from anabranch.controller.domain.cluster.election import Answers, Promised
from anabranch.segstore.adapters.replicated_log.copies import Copies
from anabranch.segstore.adapters.replicated_log.copy import Copy
from anabranch.segstore.adapters.replicated_log.feeder import Feeder
from anabranch.segstore.domain.log.replica.history import Counted, History, Verdict
from anabranch.segstore.domain.log.replica.progress import Progress
from anabranch.segstore.domain.log.stream.messages import NOTHING, Kind, Link, Message, Opening
from kit.planted_failover import stale_after_the_lease


def acknowledged_by_the_least_isr() -> AbstractContextManager[object]:
    """A message is acknowledged when as many copies as the ISR needs have synced it."""

    def advance(self: Progress) -> None:
        if self.enough:
            reached = sorted((self.reached(copy) for copy in self.required), reverse=True)
            self._committed = max(self._committed, reached[self._isr_min - 1])

    return patch.object(Progress, "_advance", advance)


@contextmanager
def any_replica_elected() -> Iterator[None]:
    """The replica that seems to lag the least leads, in sync or not, and alone is the ISR."""
    chosen: dict[str, LogCopy] = {}

    def elect(_isr: Sequence[LogCopy], answers: Answers, *, shunned: str = "") -> str:
        able = {
            name: answer
            for name, answer in sorted(answers.items())
            if isinstance(answer, Promised) and answer.end is not None and name != shunned
        }
        winner = max(able, key=lambda name: able[name].end.position, default="")  # type: ignore[union-attr]
        if winner:
            chosen[winner] = LogCopy(winner, able[winner].copy_id)
        return winner

    won = election.won

    def in_sync(found: Placement, winner: str) -> Placement:
        return replace(won(found, winner), isr=(chosen[winner],))

    with patch.object(election, "elect", elect), patch.object(election, "won", in_sync):
        yield


def _one_id() -> AbstractContextManager[object]:
    """A copy that was created again has the id of the one before it."""

    async def create(
        self: Copies, container: int, log_id: str, container_epoch: int, base: Link
    ) -> Copy:
        with patch.object(self, "_ids", _OneId(f"{self._node_id}-{log_id}")):
            return await create_new(self, container, log_id, container_epoch, base)

    create_new = Copies._create
    return patch.object(Copies, "_create", create)


@contextmanager
def lives_of_a_copy_not_told_apart() -> Iterator[None]:
    """A copy that was created again counts as the one before it, without leaving the ISR."""

    async def removed(_self: Feeder, _copy: LogCopy) -> None:
        return

    with _one_id(), patch.object(Feeder, "_removed", removed):
        yield


class _OneId:
    """`IdSource` with one id for ever."""

    def __init__(self, one: str) -> None:
        self._one = one

    def new_id(self) -> str:
        return self._one


def shrunk_before_confirmed() -> AbstractContextManager[object]:
    """A copy that failed does not count any more, before the placement says so."""
    failed = Progress.failed

    def fail(self: Progress, copy: LogCopy) -> None:
        failed(self, copy)
        if copy != self._own and copy in self._failed:
            self._confirmed -= {copy}
            self._perhaps -= {copy}
            self._advance()

    return patch.object(Progress, "failed", fail)


@contextmanager
def truncated_by_offset() -> Iterator[None]:
    """Copies are compared by the numbers of operations: not by epoch, and not by checksum."""

    def common(self: History, marks: Sequence[Link]) -> Link | None:
        reached = min(marks[-1].last_sequence, self.end.last_sequence)
        ends = [self.base, *(found.link for found in self._counted)]
        return next((link for link in reversed(ends) if link.last_sequence == reached), None)

    def has(self: History, link: Link) -> bool:
        ends = [self.base, *(found.link for found in self._counted)]
        return any(own.last_sequence == link.last_sequence for own in ends)

    def rewind(self: History, to: Link) -> None:
        while self._counted and self.end.last_sequence > to.last_sequence:
            self._counted.pop()

    def judge(self: History, message: Message, _opening: Opening | None) -> Verdict:
        if message.kind is Kind.OPENING:
            return (
                Verdict.NEXT
                if message.container_epoch > self.end.container_epoch
                else Verdict.KNOWN
            )
        if message.last_sequence <= self.end.last_sequence:
            return Verdict.KNOWN
        follows = message.first_sequence == self.end.last_sequence + 1
        return Verdict.NEXT if follows else Verdict.REFUSED

    with patch.multiple(History, common=common, has=has, rewind=rewind, judge=judge):
        yield


def promise_not_synced() -> AbstractContextManager[object]:
    """A promise is kept in memory alone."""

    async def promise(self: Copy, container_epoch: int) -> None:
        if container_epoch < self.promised:
            raise self._deposed(container_epoch)
        if container_epoch > self.promised:
            self.promised = container_epoch
            self._end_leader(self._deposed(self.leading_epoch))

    return patch.object(Copy, "promise", promise)


def acknowledged_before_the_sync() -> AbstractContextManager[object]:
    """A copy reports a message when it is written, and does not wait for the sync."""
    append = Copy.append

    def append_and_tell(
        self: Copy,
        data: Sequence[bytes],
        message: Message,
        opened: Opening | None,
        on_synced: Callable[[Counted], None],
        *,
        container_epoch: int,
    ) -> Counted:
        counted = append(
            self, data, message, opened, lambda _: None, container_epoch=container_epoch
        )
        self.synced = counted.position
        if self.leading_epoch:
            self._records._local.schedule(lambda: on_synced(counted))
        else:
            on_synced(counted)
        return counted

    return patch.object(Copy, "append", append_and_tell)


@contextmanager
def wiped_replica_wins() -> Iterator[None]:
    """A store of the ISR that lost its disk leads with a new and empty copy."""

    def end_of(copy: LogCopy, answers: Answers) -> election.CopyEnd | None:
        answer = answers.get(copy.node_id)
        if not isinstance(answer, Promised):
            return None
        return answer.end or election.CopyEnd(0, 0, 0)

    find = Copies.find

    async def find_or_create(self: Copies, container: int, log_id: str) -> Copy | None:
        found = await find(self, container, log_id)
        if found is None:
            return await self.create(container, log_id, 0, NOTHING)
        return found

    with (
        _one_id(),
        patch.object(election, "_end_of", end_of),
        patch.object(Copies, "find", find_or_create),
    ):
        yield


def grown_before_the_opening() -> AbstractContextManager[object]:
    """A copy becomes a member as soon as it shares anything with the leader."""
    due = Progress.due

    def grow_early(self: Progress):  # type: ignore[no-untyped-def]
        with patch.object(self, "_opening", (-1, 0)):
            return due(self)

    return patch.object(Progress, "due", grow_early)


REPLICA_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "acknowledged by the least ISR": acknowledged_by_the_least_isr,
    "any replica elected": any_replica_elected,
    "lives of a copy not told apart": lives_of_a_copy_not_told_apart,
    "shrunk before confirmed": shrunk_before_confirmed,
    "truncated by offset": truncated_by_offset,
    "promise not synced": promise_not_synced,
    "acknowledged before the sync": acknowledged_before_the_sync,
    "stale read after the lease": stale_after_the_lease,
    "wiped replica wins": wiped_replica_wins,
    "grown before the opening": grown_before_the_opening,
}
