"""Commits short transactions: one group, sent until a store says that it is stored.

    pen, layout ──► group ──► request ──stored──► done
          ▲                     │  ▲──lost, unavailable: the same group again
          │                     ▼
          └──another layout, or another pen── refused as a whole

**A refused group is not stored, and never will be.** A store decides about a group as a whole, so a
refusal leaves nothing behind. Earlier copies of the same group, whose answers got lost, may remain;
while there may be one, the commit is *unclear*.

- *A segment is sealed.* The pen's numbers are a part of the sealed segment. If an earlier copy had
  been stored, the store would have recognised this one and acknowledged it. A copy that arrives
  later meets the seal, which is for good. The events may therefore be routed anew, as another
  group, even if the commit was unclear.
- *A segment was deleted.* A deleted segment has no numbers, so an earlier copy may have been stored
  before: if the commit is unclear, its outcome is unknown. Otherwise the events are routed anew.
- *The store has forgotten the pen* (it remembers a writer for a day at least, and a pen may rest
  longer). If the commit is unclear, its outcome is unknown. Otherwise no copy is anywhere but the
  refused one, and the events go out once more under another pen.

The commit that is left unclear, also because it was cancelled, keeps its pen and its group.
`perform` may be called again: it sends the same group, which a store recognises.
"""

from dataclasses import dataclass

from anabranch.client.backoff import Backoff
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings, WriterSettings
from anabranch.client.transactions.calls import TransactionCalls
from anabranch.client.transactions.group import Group, group_of
from anabranch.client.transactions.kept import Kept
from anabranch.client.transactions.layout import CurrentLayout
from anabranch.client.transactions.pens import Pen, Pens
from anabranch.client.transactions.unmerged import Unmerged
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import (
    AnabranchError,
    EventGap,
    Fenced,
    OutcomeUnknown,
    PartialDuplicate,
    Remedy,
    Retry,
    SegmentNotFound,
    SegmentSealed,
    Unavailable,
    WriterExpired,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.messages import AppendedTogether, AppendTogether

REPEATED_S_MAX = 3600.0
"""How long after its first copy a group may be sent again: far below the day for which every store
remembers a writer."""


class Committing:
    """What the short transactions of one client share for one stream."""

    def __init__(
        self,
        stream: StreamRef,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
    ) -> None:
        self.stream = stream
        self.pens = Pens(stream, runtime.ids)
        self.layout = CurrentLayout(stream, control, directory)
        self.unmerged = Unmerged()
        self.calls = TransactionCalls(stream, control, runtime.clock, runtime.rng)
        self.control = control
        self.directory = directory
        self.runtime = runtime
        self.carrier = runtime.ids.new_bytes()
        """The writer id of the blocks that commits carry."""
        self._controllers_ms: float | None = None

    def controllers_ms(self, now_s: float) -> int:
        """The controllers' clock at `now_s` of the monotonic one, in Unix ms; 0: not known."""
        known = self._controllers_ms
        return 0 if known is None else int(known + now_s * 1000)

    def learn_clock(self, now_ms: int, now_s: float) -> None:
        """Note the controllers' clock at `now_s`."""
        self._controllers_ms = now_ms - now_s * 1000


@dataclass(slots=True)
class _Hold:
    """A commit's pen. `is_pooled`: whether other commits wait for its return."""

    pen: Pen
    is_pooled: bool = True


class Commit:
    """One commit. `is_unclear`: a copy of its group may be stored, or may still arrive."""

    def __init__(self, kept: Kept, shared: Committing, settings: WriterSettings) -> None:
        self._kept = kept
        self._shared = shared
        self._settings = settings
        self._runtime = shared.runtime
        self._chance = shared.runtime.rng.random()
        self._hold: _Hold | None = None
        self._group: Group | None = None
        self._has_new_pen = False
        self._first_sent_s: float | None = None
        self.is_unclear = False

    async def perform(self) -> bool:
        """Store the events. Returns False, with nothing stored, if they need a long transaction.

        Raises StreamNotFound, ScopeNotFound, StreamSealed, Busy (no pen became free), Unavailable
        and other errors with nothing stored; OutcomeUnknown if it is unclear.
        """
        limit_s = self._settings.retry_timeout_s
        backoff = Backoff(BackoffSettings(), self._runtime.rng, limit_s)
        if self._hold is None:
            self._hold = _Hold(await self._shared.pens.take(limit_s))
        try:
            return await self._until_stored(self._hold, backoff)
        finally:
            self._put_away(self._hold)

    def _put_away(self, hold: _Hold) -> None:
        """Return the pen, unless the outcome of its group is unclear."""
        if self.is_unclear:
            if hold.is_pooled:
                hold.is_pooled = False
                self._shared.pens.drop()
            return
        self._hold, self._group = None, None
        if hold.is_pooled:
            self._shared.pens.give_back(hold.pen)

    async def _until_stored(self, hold: _Hold, backoff: Backoff) -> bool:
        clock = self._runtime.clock
        while True:
            try:
                group = self._group or await self._new_group(hold.pen)
                if group is None:
                    return False
                self._group = group
                await self._send(group)
                hold.pen.advance(group.places)
                self.is_unclear = False
                return True
            except (Retry, Fenced) as error:
                failure: AnabranchError = error
            except AnabranchError as error:
                failure = self._refused(error, hold)
            pause_s = backoff.failed(clock.monotonic())
            if pause_s is None:
                raise self._gave_up(failure) from failure
            await clock.sleep(pause_s)

    async def _new_group(self, pen: Pen) -> Group | None:
        layout = await self._shared.layout.get()
        return group_of(
            self._kept, layout, pen,
            chance=self._chance,
            now_ms=self._runtime.clock.now_ms(),
            zstd_level=self._settings.zstd_level,
        )  # fmt: skip

    async def _send(self, group: Group) -> None:
        """Send one copy. Raises the error of the store; Retry or Fenced if it did not decide."""
        directory, was_unclear = self._shared.directory, self.is_unclear
        location: SegmentLocation | None = None
        try:
            connection, location = await directory.connect(group.segment)
            request = AppendTogether(
                segment=group.segment, container_epoch=location.container_epoch,
                trace_parent=self._sent(group), writer_id=group.writer_id, places=group.places,
            )  # fmt: skip
            await connection.request(
                request, AppendedTogether,
                timeout_s=self._settings.ack_timeout_s, payload=group.payload,
            )  # fmt: skip
        except (Retry, Fenced):
            if location is not None:
                directory.forget(location)
            raise
        except AnabranchError:
            self.is_unclear = was_unclear  # this copy was refused
            raise

    def _sent(self, group: Group) -> str:
        """A copy is about to leave; returns its trace parent. Raises OutcomeUnknown if the first
        copy left too long ago."""
        now_s = self._runtime.clock.monotonic()
        if self._first_sent_s is None or not self.is_unclear:
            self._first_sent_s = now_s
        elif now_s - self._first_sent_s > REPEATED_S_MAX:
            raise self.unknown("too late to send it again")
        self.is_unclear = True
        spans = self._kept.spans
        if spans is None:
            return ""
        count = sum(place.count for place in group.places)
        spans.sent(group.segment, count, len(group.payload))
        return spans.trace_parent

    def _refused(self, error: AnabranchError, hold: _Hold) -> AnabranchError:
        """Decide about a refused group: see the module. Returns the error if there is
        another attempt, and raises it, or OutcomeUnknown, otherwise."""
        group = self._group
        if group is None:  # no store has seen it
            raise error
        match error:
            case SegmentSealed():
                pass
            case SegmentNotFound() | OutcomeUnknown() if not self.is_unclear:
                pass
            case WriterExpired() | EventGap() if not self.is_unclear and not self._has_new_pen:
                self._has_new_pen = True
                hold.pen = self._shared.pens.new()
                self._group = None
                return error
            case PartialDuplicate():  # a part is stored, although a group is stored as a whole
                self.is_unclear = True
                raise self.unknown(error.code) from error
            case _ if self.is_unclear:
                raise self.unknown(error.code) from error
            case _:
                raise error
        self._shared.layout.forget(group.layout)
        self._group, self.is_unclear = None, False
        return error

    def _gave_up(self, error: AnabranchError) -> AnabranchError:
        if self.is_unclear:
            return self.unknown(error.code)
        message = f"gave up a commit after {self._settings.retry_timeout_s:g} s: {error.message}"
        kind = type(error) if isinstance(error, Retry) else Unavailable
        return kind(message, stream=str(self._shared.stream), cause=error.code)

    def unknown(self, cause: str) -> OutcomeUnknown:
        """The error of a commit whose outcome is unknown. Fields: stream, segment, writer (the id
        in the blocks' headers), transaction (empty), cause."""
        group = self._group
        return OutcomeUnknown(
            "the outcome of a short commit is unknown",
            remedy=Remedy(
                "read the events that the stream has got since the commit began",
                api="`await txn.commit()` asks again, for an hour; or read the events that the "
                "stream has got since the commit began",
            ),
            stream=str(self._shared.stream), transaction="",
            segment=group.segment if group is not None else "",
            writer=group.writer_id.hex() if group is not None else "", cause=cause,
        )  # fmt: skip
