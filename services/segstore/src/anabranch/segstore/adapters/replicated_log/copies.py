"""The copies of this store: its own ones as a leader, and those that other leaders feed.

    promise ──► the copy is opened, and obeys this caller from now on
    rewind, reset, append, release ──► only from the caller that the copy obeys
    remove ──► the copy is gone; a later one has another id

One change of a container's copy happens at a time; messages are stored in between. After each wait
the copy's promised epoch decides whether the caller may still go on.

State owned: the open copies, and the caller that each of them obeys.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    Deposed,
    ObjectExists,
    Unavailable,
)
from anabranch.common.model.cluster import LogCopy, Placement
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.logger import get_logger
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.replicated_log.copy import Copy, begin_copy, open_copy
from anabranch.segstore.adapters.replicated_log.follower import Follower
from anabranch.segstore.adapters.replicated_log.records import (
    WAIT_S_MAX,
    Local,
    LocalLog,
    Spawn,
    until_written,
)
from anabranch.segstore.domain.log.replica.keeping import is_void
from anabranch.segstore.domain.log.replica.names import copy_name, parse_copy_name
from anabranch.segstore.domain.log.stream.messages import Link
from anabranch.segstore.ports_replica import CopyCaller, CopyState

_log = get_logger(__name__)


class Copies:
    """`CopyHost` of one store. All calls come from the event loop's thread.

    `on_failure` is called once, with the error that ended the local log for all copies: the store
    must end, even if it leads no container.
    """

    def __init__(
        self,
        local: LocalLog,
        node_id: str,
        ids: IdSource,
        clock: Clock,
        *,
        schedule: Schedule,
        spawn: Spawn,
        on_failure: Callable[[AnabranchError], None],
    ) -> None:
        self._log = local
        self._local = Local(local, clock, schedule, spawn, self._failed)
        self._node_id = node_id
        self._ids = ids
        self._on_failure = on_failure
        self._failure: AnabranchError | None = None
        self._copies: dict[int, Copy] = {}
        self._followers: dict[int, Follower] = {}
        self._promised: dict[int, int] = {}
        """Epochs that were promised while the store had no copy to record them in."""
        self._changing: dict[int, asyncio.Future[None]] = {}
        self._dropped: set[int] = set()
        """Containers whose copy held up the journal for too long, and obeys no leader."""

    def _failed(self, error: AnabranchError) -> None:
        if self._failure is None:
            self._failure = error
            self._on_failure(error)

    # --- copies -------------------------------------------------------------------------------

    async def find(self, container: int, log_id: str) -> Copy | None:
        """The store's copy of this log; None if it has none.

        Raises CorruptJournal, FormatTooNew, Unavailable, the failure of the local log.
        """
        async with self._change(container):
            return await self._find(container, log_id)

    async def create(self, container: int, log_id: str, container_epoch: int, base: Link) -> Copy:
        """Create a new copy behind `base`, in place of an older one; durable on return.

        Raises Deposed (a higher epoch was promised), ObjectExists (the local log holds a log of the
        container that is not replicated), DiskFailed, Unavailable.
        """
        async with self._change(container):
            return await self._create(container, log_id, container_epoch, base)

    async def remove(self, container: int) -> None:
        """Remove the container's copy; durable on return. Harmless if there is none.

        Raises DiskFailed, Unavailable.
        """
        async with self._change(container):
            await self._remove(container)

    def promised(self, container: int) -> int:
        """The highest container epoch that this process knows to be promised; 0 without one."""
        return self._highest(container)

    @asynccontextmanager
    async def _change(self, container: int) -> AsyncIterator[None]:
        """Wait until no other change of the container's copy is under way. Raises Unavailable."""
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while (other := self._changing.get(container)) is not None:
                    await asyncio.wait({other})
        except TimeoutError:
            raise Unavailable(
                "another change of the container's copy takes too long", container=container
            ) from None
        done = self._changing[container] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._changing[container]
            done.set_result(None)

    async def _find(self, container: int, log_id: str) -> Copy | None:
        if self._log.failure is not None:
            raise self._log.failure
        name = self._log.logs().get(container, "")
        found = parse_copy_name(name)
        if found is None or found[0] != log_id:
            return None
        copy = self._copies.get(container)
        if copy is None or copy.failure is not None:
            self._forget(container, "the copy of the log is opened again")
            copy = await open_copy(self._local, container, name)
            if copy is not None:
                self._copies[container] = copy
        return copy

    async def _create(self, container: int, log_id: str, container_epoch: int, base: Link) -> Copy:
        self._check_not_below(container, container_epoch)
        await self._remove(container)
        name = copy_name(log_id, self._ids.new_id())
        await self._log.create_log(container, name)
        copy = await begin_copy(self._local, container, name, container_epoch, base)
        self._copies[container] = copy
        return copy

    async def _remove(self, container: int) -> None:
        name = self._log.logs().get(container)
        if name is not None and parse_copy_name(name) is None:
            raise ObjectExists(
                "the store's own log holds a log of the container that is not replicated",
                container=container, log_id=name,
            )  # fmt: skip
        self._promised[container] = self._highest(container)
        self._forget(container, "the copy of the log was removed")
        if name is not None:
            await until_written(self._local, lambda: self._log.remove_log(container, name))
        self._dropped.discard(container)

    def _forget(self, container: int, reason: str) -> None:
        """Close the copy, so that it can be opened again or removed."""
        self._let_go(container)
        copy = self._copies.pop(container, None)
        if copy is not None:
            copy.close(Unavailable(reason, container=container))

    def _highest(self, container: int) -> int:
        copy = self._copies.get(container)
        return max(self._promised.get(container, 0), copy.promised if copy is not None else 0)

    def _check_not_below(self, container: int, container_epoch: int) -> None:
        highest = self._highest(container)
        if container_epoch < highest:
            raise Deposed(
                "the store promised a higher container epoch",
                container=container, container_epoch=container_epoch, promised=highest,
            )  # fmt: skip

    # --- ports_replica.CopyHost ---------------------------------------------------------------

    async def promise(
        self, container: int, log_id: str, container_epoch: int, caller: CopyCaller | None
    ) -> CopyState:
        """See `CopyHost`. The copy obeys this caller, and no older one, from now on.

        A leader whose connection was lost promises its epoch again by another caller.
        """
        async with self._change(container):
            copy = await self._find(container, log_id)
            self._check_not_below(container, container_epoch)
            if caller is not None:
                self._check_free(container, container_epoch, copy)
            if caller is not None or container_epoch > self._highest(container):
                self._let_go(container)
            if copy is None:
                self._promised[container] = container_epoch
            else:
                await copy.promise(container_epoch)
            if caller is not None:
                self._obey(container, container_epoch, caller, copy)
            return _state(copy)

    def _check_free(self, container: int, container_epoch: int, copy: Copy | None) -> None:
        if copy is not None and copy.leading_epoch == container_epoch:
            raise Deposed(
                "this store leads the log under the same container epoch",
                container=container, container_epoch=container_epoch,
            )  # fmt: skip
        if container in self._dropped:
            raise Unavailable(
                "the copy holds up the store's journal and will be removed", container=container
            )

    async def rewind(
        self, container: int, container_epoch: int, to: Link, caller: CopyCaller
    ) -> None:
        """See `CopyHost`."""
        async with self._change(container):
            copy = self._held(container, container_epoch, caller).copy
            if copy is None:
                raise CorruptJournal("the store has no copy of the log", container=container)
            await copy.rewind(to, container_epoch=container_epoch)

    async def reset(
        self, container: int, log_id: str, container_epoch: int, base: Link, caller: CopyCaller
    ) -> CopyState:
        """See `CopyHost`."""
        async with self._change(container):
            self._held(container, container_epoch, caller)
            copy = await self._create(container, log_id, container_epoch, base)
            self._obey(container, container_epoch, caller, copy)
            return _state(copy)

    def append(
        self, container: int, container_epoch: int, message: bytes, caller: CopyCaller
    ) -> None:
        """See `CopyHost`. A refusal ends the caller's hold on the copy."""
        try:
            follower = self._held(container, container_epoch, caller)
        except AnabranchError as error:
            caller.refused(container, container_epoch, error)
            return
        try:
            follower.append(message)
        except AnabranchError as error:
            self._refuse(follower, error)

    def release(
        self, container: int, container_epoch: int, sequence: int, caller: CopyCaller
    ) -> None:
        """See `CopyHost`."""
        try:
            copy = self._held(container, container_epoch, caller).copy
        except AnabranchError as error:
            caller.refused(container, container_epoch, error)
            return
        if copy is not None and copy.failure is None:
            copy.release(sequence)

    def lost(self, caller: CopyCaller) -> None:
        """See `CopyHost`."""
        held = [container for container, found in self._followers.items() if found.caller is caller]
        for container in held:
            self._let_go(container)

    def _held(self, container: int, container_epoch: int, caller: CopyCaller) -> Follower:
        """The caller's hold on the copy. Raises Deposed, Unavailable."""
        follower = self._followers.get(container)
        if follower is None or not follower.is_of(container_epoch, caller):
            self._check_not_below(container, container_epoch)
            raise Unavailable(
                "the copy of the log does not obey this caller: promise the epoch again",
                container=container, container_epoch=container_epoch,
            )  # fmt: skip
        return follower

    def _obey(
        self, container: int, container_epoch: int, caller: CopyCaller, copy: Copy | None
    ) -> None:
        self._let_go(container)
        self._followers[container] = Follower(
            container, container_epoch, caller, copy, self._local.schedule
        )

    def _let_go(self, container: int) -> None:
        follower = self._followers.pop(container, None)
        if follower is not None:
            follower.end()

    def _refuse(self, follower: Follower, error: AnabranchError) -> None:
        if self._followers.get(follower.container) is follower:
            self._let_go(follower.container)
        follower.caller.refused(follower.container, follower.container_epoch, error)

    # --- keeping the journal small ------------------------------------------------------------

    async def tidy(self, placements: Iterable[Placement]) -> None:
        """Remove the copies that the placements need no more (`domain/log/replica/keeping.py`).

        The placements must have been read after the last `drop`. One that is older than the epoch
        that a copy promised decides nothing. Raises DiskFailed, Unavailable; repeatable.
        """
        for placement in placements:
            if self._is_void(placement):
                async with self._change(placement.container):
                    if self._is_void(placement):
                        await self._remove(placement.container)
                        _log.info("removed a copy of a log", container=placement.container)

    def _is_void(self, placement: Placement) -> bool:
        container = placement.container
        found = parse_copy_name(self._log.logs().get(container, ""))
        copy = self._copies.get(container)
        if found is None or placement.container_epoch < self._highest(container):
            return False
        if copy is not None and copy.leading_epoch:
            return False
        own = LogCopy(self._node_id, found[1])
        return is_void(own, found[0], placement, dropped=container in self._dropped)

    async def unpin(self, container: int) -> bool:
        """Release the last message of the container's copy, if tier 2 has everything.

        Otherwise ask the leader for a flush, and return False. Raises the errors of `find`.
        """
        async with self._change(container):
            found = parse_copy_name(self._log.logs().get(container, ""))
            copy = await self._find(container, found[0]) if found is not None else None
            if copy is not None and await copy.unpin():
                return True
        follower = self._followers.get(container)
        if follower is not None and follower.copy is not None:
            follower.caller.flush_wanted(container, follower.container_epoch)
        return False

    def drop(self, container: int) -> None:
        """Have the container's copy leave the ISR, so that `tidy` can remove it.

        Harmless for a copy that this store leads.
        """
        copy = self._copies.get(container)
        if parse_copy_name(self._log.logs().get(container, "")) is None:
            return
        if copy is not None and copy.leading_epoch:
            return
        self._dropped.add(container)
        follower = self._followers.get(container)
        if follower is not None:
            self._refuse(
                follower,
                Unavailable("the copy holds up the store's journal", container=container),
            )

    def keep_dropped(self) -> None:
        """Let dropped copies that still exist obey leaders again: the journal is small enough."""
        self._dropped.clear()

    @property
    def dropped(self) -> Sequence[int]:
        """Containers whose copy was dropped and still exists."""
        return sorted(self._dropped)

    def close(self) -> None:
        """Close every copy; harmless to repeat."""
        for container in list(self._copies):
            self._forget(container, "the store's copies were closed")


def _state(copy: Copy | None) -> CopyState:
    if copy is None:
        return CopyState("", ())
    return CopyState(copy.copy_id, copy.history.marks())
