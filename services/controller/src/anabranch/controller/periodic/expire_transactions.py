"""Aborts transactions whose stored deadline has passed, in the buckets that this process owns.

Every 100 ms, a round asks the timer wheel which transactions are due, in those owned buckets in
which the mirror knows deadlines. The round then arms the wheel, in one batch, with the deadlines
that the mirror has learned since the last round; begins and pings do not wait for it. Every five
seconds, and at once after a bucket was taken, a sweep of the mirror aborts everything past its
deadline. The sweep also arms again the deadlines that come soon, because the wheel may have lost
them. Without a wheel, or while it does not answer, a sweep runs every second.

The wheel and the mirror only propose. Each decision uses the state that it appends to, the deadline
in that state and the current time. A controller that was paused, or no longer owns the bucket,
therefore aborts no transaction that was pinged. If the wheel proposes a transaction that was pinged
since, the round arms it at the later deadline.

A sweep also drops from the mirror transactions that ended long ago and that their stream will never
note.

A defect in one bucket's timers or in one transaction is contained: the others continue.

Owns: the time of the next sweep, and whether the wheel answers. If the event store does not answer,
the round raises, and the next sweep tries again.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import structlog

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import AnabranchError, Corrupt, Unavailable
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import decide, expiry
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.segments import ref_of
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.periodic.job import Job
from anabranch.controller.ports import StreamListing, TransactionTimers
from anabranch.controller.projections.transactions import TransactionMirror

TICK_S = 0.1
SWEEP_S = 5.0
SWEEP_ALONE_S = 1.0
"""The sweep's period without timers."""
DECISIONS_AT_ONCE_MAX = 32
BUCKETS_AT_ONCE_MAX = 4
ROUND_MAX = 1_000
"""Transactions per bucket and round: returned by the timers, and aborted by a sweep."""
ARMED_AHEAD_MS = 10_000
ARMED_MAX = 10_000
"""Transactions that one sweep arms again per bucket; a later sweep arms the others before they are
due unless thousands are due per second.
"""

EXPIRY = "expiry"

Expired = Callable[[float], None]
"""Takes the delay, in seconds, between a transaction's deadline and its abort."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """The sources of transactions and their streams, and the buckets that this process owns."""

    transactions: TransactionMirror
    streams: StreamListing
    owned: Callable[[], frozenset[int]]


@dataclass(slots=True)
class _Found:
    """The findings of one round: overdue transactions, and deadlines to arm again, by bucket."""

    overdue: list[str] = field(default_factory=list)
    pinged: dict[int, dict[str, int]] = field(default_factory=dict)


class TransactionExpirer:
    """The job that aborts overdue transactions. If `timers` is None, it relies on sweeps alone."""

    def __init__(
        self,
        known: Known,
        transactions: Repository[Transaction, TransactionEvent],
        timers: TransactionTimers | None,
        *,
        clock: Clock,
        on_expired: Expired,
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._known = known
        self._transactions = transactions
        self._timers = timers
        self._clock = clock
        self._on_expired = on_expired
        self._sweep_at_s = clock.monotonic()
        self._timers_answer = True

    def sweep_soon(self) -> None:
        """Sweep in the next round, because buckets were taken."""
        self._sweep_at_s = self._clock.monotonic()

    def job(self) -> Job:
        """The periodic job."""
        return Job(
            name="expiry of transactions",
            period_s=TICK_S,
            jitter=0.0,
            round=self.round,
            failing="transactions past their deadlines are not aborted",
        )

    async def round(self) -> None:
        """Look once, and abort overdue transactions.

        Raises the errors of the event store. If the timers do not answer, the round works without
        them.
        """
        owned = self._known.owned()
        is_sweep = self._clock.monotonic() >= self._sweep_at_s
        busy = [bucket for bucket in owned if self._known.transactions.tally.deadlines(bucket)]
        found = await self._told(busy) if self._timers_answer or is_sweep else _Found()
        for bucket, news in self._known.transactions.tally.take_news().items():
            if bucket in owned:
                found.pinged.setdefault(bucket, {}).update(news)
        if is_sweep:
            self._sweep_at_s = self._clock.monotonic() + self._sweep_s()
            self._forget_left_overs(owned)
            self._sweep(busy, found)
        await self._arm(found.pinged)
        await self._abort(found.overdue)

    def _sweep_s(self) -> float:
        return SWEEP_S if self._timers is not None and self._timers_answer else SWEEP_ALONE_S

    # --- which transactions are due ------------------------------------------------------------

    async def _told(self, buckets: Sequence[int]) -> _Found:
        """The due transactions of these buckets by the timers, compared with the mirror's
        deadlines.
        """
        found = _Found()
        timers = self._timers
        if timers is None or not buckets:
            return found

        async def ask(bucket: int) -> None:
            told = await timers.due(bucket, self._clock.now_ms(), ROUND_MAX)
            deadlines_ms = self._known.transactions.tally.deadlines(bucket)
            due = expiry.sorted_out(told, deadlines_ms, self._clock.now_ms())
            found.overdue += due.overdue
            if due.pinged:
                found.pinged[bucket] = dict(due.pinged)

        async def ask_apart(bucket: int) -> None:
            with self._containment.contained(JOB, f"timers of bucket {bucket}", park_at=0):
                await ask(bucket)

        try:
            await for_each(buckets, BUCKETS_AT_ONCE_MAX, ask_apart)
        except Unavailable as error:
            self._note_timers(error)
        else:
            self._note_timers(None)
        return found

    def _sweep(self, buckets: Sequence[int], found: _Found) -> None:
        """Add the overdue transactions by the mirror, and the deadlines that the timers may have
        lost.
        """
        told = set(found.overdue)
        for bucket in buckets:
            with self._containment.contained(JOB, f"sweep of bucket {bucket}", park_at=0):
                self._sweep_bucket(bucket, told, found)

    def _sweep_bucket(self, bucket: int, told: Set[str], found: _Found) -> None:
        now_ms = self._clock.now_ms()
        deadlines_ms = self._known.transactions.tally.deadlines(bucket)
        passed = expiry.overdue(deadlines_ms, now_ms, ROUND_MAX)
        found.overdue += [subject for subject in passed if subject not in told]
        if len(passed) == ROUND_MAX:
            self.sweep_soon()  # there may be more of them
        soon = expiry.soon_due(deadlines_ms, now_ms, ARMED_AHEAD_MS, ARMED_MAX)
        if soon:
            found.pinged.setdefault(bucket, {}).update(soon)

    async def _arm(self, deadlines_ms: Mapping[int, Mapping[str, int]]) -> None:
        timers = self._timers
        if timers is None or not self._timers_answer:
            return
        try:
            for bucket, of_bucket in deadlines_ms.items():
                with self._containment.contained(JOB, f"arming in bucket {bucket}", park_at=0):
                    await timers.arm(bucket, of_bucket)
        except Unavailable as error:
            self._note_timers(error)

    def _note_timers(self, error: Unavailable | None) -> None:
        """Log only the first failure in a row: the others follow from it or look the same."""
        if error is not None and self._timers_answer:
            _log.warning(
                "the timers of transactions do not answer; sweeps find the deadlines",
                error=str(error),
                remedy=error.remedy_for("command"),
            )
            self.sweep_soon()
        elif error is None and not self._timers_answer:
            _log.info("the timers of transactions answer again")
        self._timers_answer = error is None

    # --- aborting them ---------------------------------------------------------------------------

    async def _abort(self, subjects: Sequence[str]) -> None:
        if not subjects:
            return
        try:
            await for_each(subjects, DECISIONS_AT_ONCE_MAX, self._abort_apart)
        except AnabranchError:
            # A sweep within a second finds the transactions that the timers named.
            self._sweep_at_s = min(self._sweep_at_s, self._clock.monotonic() + SWEEP_ALONE_S)
            raise

    async def _abort_apart(self, subject: str) -> None:
        """Contain a defect, so that one failing transaction does not keep others open."""
        await self._containment.attempt(EXPIRY, subject, partial(self._abort_one, subject))

    async def _abort_one(self, subject: str) -> None:
        """Abort it if its deadline has passed. Raises Unavailable, OutcomeUnknown, Busy."""
        bucket = shard_of_subject(subject)
        if bucket not in self._known.owned():
            return
        decided: Sequence[TransactionEvent] = ()

        def expire(loaded: Loaded[Transaction]) -> Sequence[TransactionEvent]:
            nonlocal decided
            decided = decide.expire(loaded.state, self._clock.now_ms())
            return decided

        try:
            loaded = await self._transactions.transact(subject, expire)
        except Corrupt as error:
            remedy = error.remedy_for("command")
            _log.warning("a transaction cannot be read", error=str(error), remedy=remedy)
            return
        if decided:
            self._on_expired((self._clock.now_ms() - loaded.state.deadline_ms) / 1000)
        elif loaded.state.is_open:
            await self._arm({bucket: {subject: loaded.state.deadline_ms}})

    def _forget_left_overs(self, owned: frozenset[int]) -> None:
        known, now_ms = self._known.transactions, self._clock.now_ms()
        for subject in known.tally.ended():
            loaded = known.family.known(subject)
            if loaded is None or shard_of_subject(subject) not in owned:
                continue
            with self._containment.contained(EXPIRY, subject):
                stream = self._stream_of(loaded.state)
                if stream is not None and expiry.is_left_over(loaded.state, stream, now_ms):
                    known.forget(subject)

    def _stream_of(self, txn: Transaction) -> Stream | None:
        try:
            found = self._known.streams.stream(ref_of(txn))
        except Corrupt:
            return None
        return None if found is None else found.state
