"""Aborts transactions whose stored deadline has passed, in the buckets that this process owns.

Every 100 ms the timer wheel is asked who is due, of the owned buckets in which the mirror knows
open transactions; where there are none, nothing is asked. It is told of the deadlines that the
mirror has learned of since, all at once; who begins and pings does not wait for it. Every five
seconds, and at once when a bucket was taken, the mirror is swept: everything past its deadline is
aborted, and what comes due soon is armed anew, because the wheel may have lost it. Without a wheel,
or while it does not answer, there is a sweep every second.

The wheel and the mirror only propose. Each decision is made on the state that is appended to, by
the deadline in that state and the clock at that moment; so a controller that slept, or is not the
owner any more, aborts nothing that was pinged. Who is told by the wheel and was pinged since is
armed at the later deadline.

A sweep also forgets what ended long ago and what its stream will say nothing about any more.

A defect of one bucket's timers or of one transaction is contained: the others go on.

Owns: when the next sweep is, and whether the wheel answers. Of a store that does not answer the
round's caller hears, and the next sweep tries again.
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
"""Without timers."""
DECISIONS_AT_ONCE_MAX = 32
BUCKETS_AT_ONCE_MAX = 4
ROUND_MAX = 1_000
"""Transactions that one bucket's timers tell at a time, and that one round aborts by a sweep."""
ARMED_AHEAD_MS = 10_000
ARMED_MAX = 10_000
"""Transactions that one sweep arms anew, of a bucket; the others' turn comes before they are due
unless there are thousands in a second."""

EXPIRY = "expiry"

Expired = Callable[[float], None]
"""Told how late, in seconds, a transaction was aborted."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """Where it is known what there is: transactions, their streams, and which buckets are owned."""

    transactions: TransactionMirror
    streams: StreamListing
    owned: Callable[[], frozenset[int]]


@dataclass(slots=True)
class _Found:
    """What one look found: who is to be aborted, and deadlines to arm anew, by bucket."""

    overdue: list[str] = field(default_factory=list)
    pinged: dict[int, dict[str, int]] = field(default_factory=dict)


class TransactionExpirer:
    """See the module. `timers` None: by sweeps alone."""

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
        """Buckets were taken: sweep in the next round."""
        self._sweep_at_s = self._clock.monotonic()

    def job(self) -> Job:
        """Aborts what is due, again and again."""
        return Job(
            name="expiry of transactions",
            period_s=TICK_S,
            jitter=0.0,
            round=self.round,
            failing="transactions past their deadlines are not aborted",
        )

    async def round(self) -> None:
        """Look once, and abort what is due. Raises what the event store raises; timers that do not
        answer are done without."""
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

    # --- who is due ---------------------------------------------------------------------------

    async def _told(self, buckets: Sequence[int]) -> _Found:
        """What the timers say of these buckets, compared with what is known."""
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
        """Add what is due by the mirror, and what the timers may have lost."""
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
            self.sweep_soon()  # there may be more
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
        """Only the first of a row is told: the others follow from it or look the same."""
        if error is not None and self._timers_answer:
            _log.warning(
                "the timers of transactions do not answer; sweeps find the deadlines",
                error=str(error),
                remedy=error.remedy,
            )
            self.sweep_soon()
        elif error is None and not self._timers_answer:
            _log.info("the timers of transactions answer again")
        self._timers_answer = error is None

    # --- what becomes of them -----------------------------------------------------------------

    async def _abort(self, subjects: Sequence[str]) -> None:
        if not subjects:
            return
        try:
            await for_each(subjects, DECISIONS_AT_ONCE_MAX, self._abort_apart)
        except AnabranchError:
            # Those that the timers told are found by the sweep, which is not put off.
            self._sweep_at_s = min(self._sweep_at_s, self._clock.monotonic() + SWEEP_ALONE_S)
            raise

    async def _abort_apart(self, subject: str) -> None:
        """One that cannot be aborted because of a defect keeps no other one open."""
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
            _log.warning("a transaction cannot be read", error=str(error), remedy=error.remedy)
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
