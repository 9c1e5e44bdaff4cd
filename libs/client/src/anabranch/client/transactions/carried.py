"""Commits transactions whose events go to the controller with the commit (ADR 19).

    layout ──► blocks ──► request ──COMMITTING, COMMITTED──► done
      ▲                    │  ▲──no answer, busy: the same request again
      └──the epoch passed──┘  └──the id is out of time──► unknown, or another id

All copies of a commit have one id, so the controllers store one of them. The commit is *unclear*
while a copy may be stored, or may still arrive.

- *The epoch has passed.* The events are routed anew and sent under the same id, also if an earlier
  copy may be stored: it has the same events.
- *The id is out of time.* Ids begin with the time at which they were drawn, and controllers refuse
  old ones. If this copy is the only one, or the id was too old when the first one left, then no
  copy is stored, and the commit draws another id. Otherwise the outcome is unknown.
- *The stream was deleted.* The layout may be of an earlier stream of the name. The commit asks for
  the present one, unless it is unclear.
- *Any other refusal* leaves nothing behind if it answers the only copy.

The control plane repeats a request after a pause, so an answer that comes before the pause answers
the only copy. Ids are drawn by the controllers' clock: the first commit of a client has an id of
the year 1970, and its refusal names the time.
"""

from collections.abc import Sequence

from anabranch.client.backoff import Backoff
from anabranch.client.settings import BackoffSettings, WriterSettings
from anabranch.client.transactions.calls import COMMIT_WAIT_MS, look_up
from anabranch.client.transactions.committing import Committing
from anabranch.client.transactions.group import shares_of
from anabranch.client.transactions.kept import Kept, together
from anabranch.client.transactions.layout import Layout
from anabranch.client.wire.control import ATTEMPT_PAUSE_S, QUERY_TIMEOUT_S
from anabranch.client.writing.batches import Numbering
from anabranch.common.contracts.transactions import (
    CarriedBlock,
    CommitEvents,
    TransactionDescription,
    TransactionInfo,
)
from anabranch.common.errors import (
    AnabranchError,
    EpochPassed,
    IdOutOfTime,
    OutcomeUnknown,
    Retry,
    StreamNotFound,
)
from anabranch.common.model.names import parse_segment_name
from anabranch.common.model.transaction import (
    CARRIED_AGE_MS_MAX,
    CARRIED_SEGMENTS_MAX,
    CARRIED_SIZE_BYTES_MAX,
    drawn_ms,
    transaction_id,
)

KEPT_SIZE_BYTES_MAX = 4 * CARRIED_SIZE_BYTES_MAX
"""The cost of events beyond which they are not even encoded."""
CLOCKS_MS = 5_000
"""More than the clocks of two controllers differ."""


class CarriedCommit:
    """One commit, of the events of one or more transactions.

    `is_unclear`: a copy of its request may be stored, or may still arrive.
    """

    def __init__(
        self, kept: Sequence[Kept], shared: Committing, settings: WriterSettings, label: str
    ) -> None:
        self._parts = kept
        self._kept = together(kept)
        self._shared = shared
        self._settings = settings
        self._label = label
        self._clock = shared.runtime.clock
        self._chance = shared.runtime.rng.random()
        self._id = ""
        self._first_sent_s = 0.0
        self._layout: Layout | None = None
        self._blocks: tuple[CarriedBlock, ...] = ()
        self.is_unclear = False

    async def perform(self, *, wait: bool) -> TransactionInfo | None:
        """Commit the events. Returns it as COMMITTING or COMMITTED, or None, with nothing stored,
        if they need a long transaction. `wait`: for COMMITTED, up to the time of one request.

        Raises StreamNotFound, ScopeNotFound, StreamSealed, CodecMissing and other errors with
        nothing stored; OutcomeUnknown if it is unclear.
        """
        unmerged = self._shared.unmerged
        before, info = unmerged.decided(), None
        try:
            info = await self._until_answered(wait)
            return info
        finally:
            if self._id and (info is not None or self.is_unclear):
                unmerged.returned(self._id, None if info is None else info.state, before)

    async def _until_answered(self, wait: bool) -> TransactionInfo | None:
        rng, limit_s = self._shared.runtime.rng, self._settings.retry_timeout_s
        backoff = Backoff(BackoffSettings(), rng, limit_s)
        while True:
            try:
                if self._layout is None and not await self._routed():
                    return None
                return await self._sent(wait)
            except (Retry, OutcomeUnknown) as error:
                failure: AnabranchError = error
            except (EpochPassed, IdOutOfTime, StreamNotFound) as error:
                failure = self._refused(error)
            except AnabranchError as error:
                if self.is_unclear:
                    raise self.unknown(error.code) from error
                raise
            pause_s = backoff.failed(self._clock.monotonic())
            if pause_s is None:
                if self.is_unclear:
                    raise self.unknown(failure.code) from failure
                raise failure
            await self._clock.sleep(pause_s)

    async def _routed(self) -> bool:
        """Route the events by the present layout; False if no request can carry them.

        Raises OutcomeUnknown if an earlier copy may be stored, so that they cannot go elsewhere.
        """
        kept, layout = self._kept, await self._shared.layout.get()
        if kept.has_columns or kept.cost > KEPT_SIZE_BYTES_MAX:
            return False
        shares = shares_of(kept, layout, self._chance)
        numbering = Numbering(
            self._shared.carrier, 1, self._clock.now_ms(), self._settings.zstd_level
        )
        blocks = tuple(
            CarriedBlock(segment_id=parse_segment_name(name)[1], block=batch.encode(numbering))
            for name, batch in shares.items()
        )
        size = sum(len(each.block) for each in blocks)
        if len(blocks) > CARRIED_SEGMENTS_MAX or size > CARRIED_SIZE_BYTES_MAX:
            if self.is_unclear:
                raise self.unknown("the present segments are too many")
            return False
        self._layout, self._blocks = layout, blocks
        return True

    async def _sent(self, wait: bool) -> TransactionInfo:
        """Send the request, and return the answer. Raises the controller's error."""
        shared, layout = self._shared, self._layout
        assert layout is not None
        now_s, was_unclear = self._clock.monotonic(), self.is_unclear
        if not self._id:
            self._id = transaction_id(shared.controllers_ms(now_s), shared.runtime.ids.new_bytes())
            self._first_sent_s = now_s
        query = CommitEvents(
            **shared.calls.names,
            transaction_id=self._id,
            incarnation=layout.incarnation,
            stream_epoch=layout.stream_epoch,
            blocks=self._blocks,
            writer=self._label,
            wait_ms=COMMIT_WAIT_MS if wait else 0,
        )
        size = sum(len(each.block) for each in self._blocks)
        for part in self._parts:
            if part.spans is not None:
                part.spans.sent(layout.names[0], len(part.payloads), size)
        self.is_unclear = True
        try:
            found = await shared.control.query(
                "commit_events", query, TransactionDescription, timeout_s=QUERY_TIMEOUT_S
            )
        except (Retry, OutcomeUnknown):
            raise
        except AnabranchError:
            is_only_copy = self._clock.monotonic() - now_s < ATTEMPT_PAUSE_S / 2
            self.is_unclear = was_unclear or not is_only_copy
            raise
        self.is_unclear = False
        return found.transaction

    def _refused(self, error: EpochPassed | IdOutOfTime | StreamNotFound) -> AnabranchError:
        """Prepare another attempt; returns the error. Raises it, or OutcomeUnknown."""
        if not isinstance(error, IdOutOfTime):
            if isinstance(error, StreamNotFound) and self.is_unclear:
                raise self.unknown(error.code) from error
            if self._layout is None:  # the controller has no such stream
                raise error
            self._shared.layout.forget(self._layout)
            self._layout = None
            return error
        now_s, now_ms = self._clock.monotonic(), int(error.fields.get("now_ms") or 0)
        self._shared.learn_clock(now_ms, now_s)
        age_ms = now_ms - drawn_ms(self._id) - (now_s - self._first_sent_s) * 1000
        if self.is_unclear and age_ms <= CARRIED_AGE_MS_MAX + CLOCKS_MS:
            raise self.unknown(error.code) from error
        self._id, self.is_unclear = "", False
        return error

    def unknown(self, cause: str) -> OutcomeUnknown:
        """The error of a commit whose outcome is unknown. Fields: stream, transaction, cause."""
        stream = self._shared.stream
        return OutcomeUnknown(
            "the outcome of the commit is unknown",
            remedy=look_up(stream, self._id),
            stream=str(stream), transaction=self._id, segment="", writer="", cause=cause,
        )  # fmt: skip
