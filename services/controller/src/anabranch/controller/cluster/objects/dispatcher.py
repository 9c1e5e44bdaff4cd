"""Keeps the mirror of one kind of object, and performs actions on that kind. Thin shell.

    ┌─▶ list ─▶ sync_all ─▶ watch ─▶ apply_changes … ─┐      perform(actions) ─▶ write_all
    └────── every `reconcile_s`, and after any loss ◀─┘            │ outcome unknown
    └──────────────────────────────────────────────────────────────┘

A dispatcher is the only part of a controller that reads or writes its bucket. The watch lists all
objects and then reports changes, so a new watch is a reconciliation: it ends in `sync_all`, which
no listener can miss. If a watch lists again by itself because it has lost its place, the dispatcher
begins another one, because objects may have been deleted in between.

An object that cannot be read is reported, and named in the store's `damaged`; the others work on.

Actions are conditional on the revision that their decision used, so several controllers that
perform actions at once do no harm. If the outcome of some writes is unknown, the dispatcher reads
the bucket: a write counts as done if the object is as the action wanted it.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar, cast

import structlog

from anabranch.common.contracts.objects import ObjectKind
from anabranch.common.errors import (
    Corrupt,
    OutcomeUnknown,
    Overloaded,
    Retry,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import ObjectStore, ObjectWrite, StoredObject
from anabranch.common.model.objects import ClusterObject
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.cluster.objects.local_store import Change, Damaged, Gone, LocalStore
from anabranch.controller.domain.cluster.objects.actions import Action, Apply

S = TypeVar("S")
T = TypeVar("T")

RECONCILE_S = 60.0
LIST_S_MAX = 60.0
"""How long the list of a watch may take."""
RETRY_S = 1.0
"""The pause before the next watch after one that failed."""
SETTLE_S_MAX = 10.0
CHUNK_COUNT = 500
"""Writes in one call of the bucket."""
PENDING_COUNT_MAX = 50_000
"""Actions that may wait for their writes at a time."""

_log = structlog.get_logger(__name__)


class Result(StrEnum):
    """DONE: the object is as the action wanted it. CONFLICT: it has changed since the decision.
    UNKNOWN: the write may still take effect. NOT_TRIED: the bucket did not answer before."""

    DONE = "done"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    NOT_TRIED = "not-tried"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one action. `revision`: of the object, or of its deletion; 0 unless DONE."""

    result: Result
    revision: int = 0


class Dispatcher(Generic[S, T]):
    """The bucket of one kind. `store` is its mirror, which only `serve` changes."""

    def __init__(
        self,
        kind: ObjectKind[S, T],
        objects: ObjectStore,
        clock: Clock,
        *,
        containment: Containment,
        reconcile_s: float = RECONCILE_S,
    ) -> None:
        self.kind = kind
        self.store: LocalStore[S, T] = LocalStore()
        self._objects = objects
        self._clock = clock
        self._containment = containment
        self._reconcile_s = reconcile_s
        self._pending_count = 0
        self._begun = 0
        """The number of the newest watch; each one lists all objects first."""
        self._synced = 0
        """The number of the watch whose list was taken last."""
        self._until: asyncio.Timeout | None = None
        """When the present watch ends."""
        self._moved = asyncio.Event()

    # --- the mirror ----------------------------------------------------------------------------

    async def serve(self) -> None:
        """Mirror the bucket until cancelled."""
        while True:
            try:
                await self._watch_until_due()
            except Retry as error:
                _log.warning(
                    "the watch of objects was interrupted", kind=self.kind.word, error=str(error)
                )
                await self._clock.sleep(RETRY_S)

    def reconcile(self) -> None:
        """Have `serve` list all objects again, now."""
        if self._until is not None and not self._until.expired():
            self._until.reschedule(asyncio.get_running_loop().time())

    async def settled(self, key: str, revision: int, within_s: float = SETTLE_S_MAX) -> None:
        """Wait until the mirror has seen a write, or everything that is newer than this call.

        `revision`: the one that the write got. Raises OutcomeUnknown after `within_s`.
        """
        enough = self._begun + 1
        try:
            async with asyncio.timeout(within_s):
                while not self._has_seen(key, revision) and self._synced < enough:
                    await self._moved.wait()
        except TimeoutError as error:
            raise OutcomeUnknown(
                f"store timed out: {self.kind.word} {key} timer: {within_s:g} secs",
                remedy="look at the object again: it is stored, and this controller lags behind",
                name=key,
            ) from error

    def _has_seen(self, key: str, revision: int) -> bool:
        found = self.store.objects.get(key)
        return self.store.revision >= revision or (found is not None and found.revision >= revision)

    async def _watch_until_due(self) -> None:
        """One watch, until the next reconciliation is due. Raises Retry."""
        self._begun += 1
        until = asyncio.timeout(LIST_S_MAX)
        try:
            async with until:
                self._until = until
                await self._watch(until)
        except TimeoutError:
            if not until.expired():
                raise
            if self._synced < self._begun:
                raise Unavailable("the list of objects did not come in time") from None
        finally:
            self._until = None

    async def _watch(self, until: asyncio.Timeout) -> None:
        """List and watch until the watch has lost its place. Raises Retry."""
        present: list[Change[S, T]] = []
        watch = cast("AsyncGenerator[StoredObject | None, None]", self._objects.watch())
        async with aclosing(watch):
            async for found in watch:
                if self._synced == self._begun:
                    if found is None:
                        return  # Deletions before this list are unknown: take another one.
                    self.store.apply_changes([self._read(found)])
                elif found is not None:
                    present.append(self._read(found))
                    continue
                else:
                    self._take_list(present)
                    present.clear()
                    until.reschedule(asyncio.get_running_loop().time() + self._reconcile_s)
                self._moved.set()
                self._moved = asyncio.Event()

    def _take_list(self, present: Sequence[Change[S, T]]) -> None:
        self.store.sync_all(
            [one for one in present if isinstance(one, ClusterObject)],
            [one for one in present if isinstance(one, Damaged)],
        )
        self._synced = self._begun

    def _read(self, found: StoredObject) -> Change[S, T]:
        """The change that the watch reports; damage and defects are logged and contained.

        An object of the revision that the mirror has is not decoded again.
        """
        if not found.value:
            return Gone(found.key, found.revision)
        held = self.store.objects.get(found.key)
        if held is not None and held.revision == found.revision:
            return held
        with self._containment.contained(JOB, f"{self.kind.word} {found.key}", park_at=0):
            try:
                return self.kind.from_stored(found)
            except Corrupt as error:
                if self.store.damaged.get(found.key) != found.revision:
                    _log.error(
                        "a stored object cannot be read",
                        key=found.key,
                        error=str(error),
                        remedy=error.remedy_for("command"),
                    )
        return Damaged(found.key, found.revision)

    # --- actions -------------------------------------------------------------------------------

    async def perform(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Perform actions on different objects of this kind, each for itself → their outcomes.

        It does not wait until the mirror shows them. Raises Overloaded; nothing was done then.
        """
        if self._pending_count + len(actions) > PENDING_COUNT_MAX:
            raise Overloaded(
                "too many changes of objects are pending",
                kind=self.kind.word,
                limit=PENDING_COUNT_MAX,
            )
        self._pending_count += len(actions)
        try:
            outcomes: list[Outcome] = []
            for at in range(0, len(actions), CHUNK_COUNT):
                writes = [self._write_of(action) for action in actions[at : at + CHUNK_COUNT]]
                chunk = await self._perform(writes)
                if chunk is None:  # The bucket does not answer at all.
                    outcomes += [Outcome(Result.UNKNOWN)] * len(writes)
                    break
                outcomes += chunk
        finally:
            self._pending_count -= len(actions)
        return outcomes + [Outcome(Result.NOT_TRIED)] * (len(actions) - len(outcomes))

    def _write_of(self, action: Action) -> ObjectWrite:
        assert action.kind is self.kind, "a dispatcher performs actions on its own kind"
        wanted, is_new = action.after, isinstance(action, Apply)
        assert is_new or action.object.revision > 0, "the action is decided on a stored object"
        value = b"" if wanted is None else self.kind.to_bytes(wanted)
        return ObjectWrite(action.object.key, value, 0 if is_new else action.object.revision)

    async def _perform(self, writes: Sequence[ObjectWrite]) -> Sequence[Outcome] | None:
        """The outcomes of one chunk; None if the bucket does not tell them."""
        try:
            revisions = await self._objects.write_all(writes)
        except (OutcomeUnknown, Unavailable) as error:
            _log.warning("the outcome of writes is unknown", kind=self.kind.word, error=str(error))
            self.reconcile()
            return await self._resolve(writes)
        return [
            Outcome(Result.CONFLICT) if revision is None else Outcome(Result.DONE, revision)
            for revision in revisions
        ]

    async def _resolve(self, writes: Sequence[ObjectWrite]) -> Sequence[Outcome] | None:
        try:
            present = {one.key: one for one in await self._objects.list()}
        except Retry:
            return None
        return [judged(write, present) for write in writes]


def judged(write: ObjectWrite, present: Mapping[str, StoredObject]) -> Outcome:
    """The outcome of a write without an answer, judged by the objects that were read after it.

    A write that has not taken effect may still arrive. If another controller wrote the same, the
    object is as it was wanted, which is enough.
    """
    found = present.get(write.key)
    if found is None:
        if not write.value:
            return Outcome(Result.DONE, write.revision)
        return Outcome(Result.CONFLICT if write.revision else Result.UNKNOWN)
    if found.revision == write.revision:
        return Outcome(Result.UNKNOWN)
    if found.value == write.value:
        return Outcome(Result.DONE, found.revision)
    return Outcome(Result.CONFLICT)
