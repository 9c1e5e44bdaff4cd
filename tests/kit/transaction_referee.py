"""Says whether transactions are all or nothing, in order, once, and end.

It is told of every stored event of transactions, of their applications and streams, and of every
operation and append of a segment store, in the order in which they happened; callers tell it what
they were answered. What it knows of streams are the lives that the control plane's referee keeps.

While things happen: nothing of a transaction is in a segment of the stream before its outcome is
stored as a commit, and nothing of an aborted one ever; a transaction is not expired before the time
promised to whoever pinged it; it is not opened behind a drained stream, and has ended when its
stream is drained; when it is said to be committed all of it can be read, and when it is said to be
aborted nothing of it is left; every answer agrees with the outcome; of each version of an
application one is committed, together with its claim. `at_rest` reads every stream key by key
(`transaction_reading`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.common.contracts.transactions import TransactionInfo, TransactionKey
from anabranch.common.model.names import TransactionSegment, transaction_segment
from anabranch.common.model.transaction import TransactionState
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain import application
from anabranch.controller.domain.application import ApplicationEvent
from anabranch.controller.domain.stream import events as stream_events
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.transaction import events
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.segstore.domain.container.operations import (
    CreateOperation,
    DeleteOperation,
    MergeOperation,
)
from kit.carried_pieces import pieces_in
from kit.control_lives import Life
from kit.sim_segments import ControlOperation, Piece, SimSegments
from kit.transaction_reading import Cut, judge_life

COMMIT, ABORT = "commit", "abort"
_OUTCOMES = {
    TransactionState.COMMITTING: COMMIT,
    TransactionState.COMMITTED: COMMIT,
    TransactionState.ABORTING: ABORT,
    TransactionState.ABORTED: ABORT,
}


@dataclass(slots=True)
class Seen:
    """What became of a transaction. `promised_s`: until when nobody may call it expired.

    `order`: the place of its commit in the order of all; `committed_step`: when it was said to be
    committed, in appends of anybody."""

    transaction_id: str
    life: Life
    key: TransactionKey | None
    outcome: str = ""
    reason: str = ""
    has_ended: bool = False
    promised_s: float = 0.0
    order: int = -1
    decided_step: int = 0
    committed_step: int | None = None
    is_carried: bool = False
    has_parts: bool = False
    committed_parts: tuple[str, ...] = ()
    wanted: list[Piece] = field(default_factory=list)
    """Everything that a store has taken."""

    def counts(self, part: str) -> bool:
        """Whether what was written as that part is committed with it."""
        return not self.has_parts or part in self.committed_parts

    def due(self) -> list[Piece]:
        """What must be read if it is committed."""
        return [piece for piece in self.wanted if self.counts(piece.part)]


class TransactionReferee:
    """See the module. Steps count what the stores have taken."""

    def __init__(
        self,
        require: Callable[[bool, str], None],
        lives: Mapping[str, Sequence[Life]],
        segments: SimSegments,
        clock: Clock,
    ) -> None:
        self._require = require
        self._lives = lives
        self._segments = segments
        self._clock = clock
        self.seen: dict[str, Seen] = {}
        self.cuts: list[Cut] = []
        self.steps = 0
        self.sent: dict[Piece, int] = {}
        """The step at which a piece was first sent."""
        self.taken: dict[Piece, int] = {}
        self.versions: dict[str, int] = {}
        self._unclaimed: tuple[str, int, Seen] | None = None
        self._orders = 0
        self.batches = 0
        self.rolls = 0
        segments.on_appended.append(self.appended)
        segments.on_carried.append(self.carried)
        segments.pieces_in = pieces_in

    # --- what is stored -------------------------------------------------------------------------

    def stored(self, subject: str, sequence: int, event: TransactionEvent) -> None:
        """An event of a transaction was stored."""
        if isinstance(event, events.TransactionOpened):
            self._opened(event)
            return
        if isinstance(event, events.TransactionSubmitted):
            self._submitted(event)
            return
        seen = self.seen[subject.rsplit(".", 1)[1]]
        who = seen.transaction_id
        match event:
            case events.TransactionCommitting():
                self._require(not seen.outcome, f"{who} has another outcome: {seen}")
                seen.outcome, seen.committed_parts = COMMIT, event.parts
                seen.order, seen.decided_step = self._orders, self.steps
                self._orders += 1
                self._all_claimed()
                if seen.key is not None:
                    self._unclaimed = (subject.split(".")[2], sequence, seen)
            case events.TransactionAborting():
                self._require(not seen.outcome, f"{who} has another outcome: {seen}")
                seen.outcome, seen.reason = ABORT, event.reason
                if event.reason == "expired":
                    early = seen.promised_s - self._clock.monotonic()
                    self._require(early <= 0.001, f"{who} has expired {early} s too early")
            case events.TransactionCommitted():
                self._require(seen.outcome == COMMIT, f"{who} is committed by word alone")
                if seen.is_carried:
                    self._require(seen.has_ended, f"{who} is recorded before its batch has ended")
                else:
                    self._committed(seen)
            case events.TransactionAborted():
                self._require(seen.outcome == ABORT, f"{who} is aborted by word alone")
                seen.has_ended = True
                self._none_left(seen)
            case _:
                pass

    def _committed(self, seen: Seen) -> None:
        seen.has_ended, seen.committed_step = True, self.steps
        self._all_readable(seen)

    def _submitted(self, event: events.TransactionSubmitted) -> None:
        seen = self._begun(event)
        if seen is None:
            return
        seen.outcome, seen.order, seen.decided_step = COMMIT, self._orders, self.steps
        seen.is_carried = True
        self._orders += 1
        self._all_claimed()
        seen.wanted += [piece for each in event.blocks for piece in pieces_in(each.block)]

    def _opened(self, event: events.TransactionOpened) -> None:
        seen = self._begun(event)
        if seen is not None:
            seen.key, seen.has_parts = event.key, event.has_parts

    def _begun(self, event: events.TransactionOpened | events.TransactionSubmitted) -> Seen | None:
        who = event.transaction_id
        life = self._life(f"{event.scope}/{event.stream}", event.incarnation)
        if life is None:
            self._require(False, f"{who} is opened in a stream that never was")
            return None
        self._require(who not in self.seen, f"{who} is opened twice")
        open_to_it = not life.is_drained and not life.is_over
        self._require(open_to_it, f"{who} is opened behind {life.ref}, which is {life.status}")
        seen = self.seen[who] = Seen(who, life, None)
        return seen

    def claimed(self, subject: str, sequence: int, event: ApplicationEvent) -> None:
        """An event of an application was stored."""
        if not isinstance(event, application.ApplicationCommitted):
            return
        shard, at, seen = self._unclaimed or ("", 0, None)
        self._unclaimed = None
        together = (shard, at + 1) == (subject.split(".")[2], sequence) and seen is not None
        self._require(together, f"{event.transaction_id} is claimed apart from its outcome")
        if seen is not None:
            asked = (seen.transaction_id, seen.key.version if seen.key else None)
            self._require(
                asked == (event.transaction_id, event.version), f"{asked} is claimed by another"
            )
        later = event.version > self.versions.get(subject, -1)
        self._require(later, f"version {event.version} of {subject} is committed again")
        self.versions[subject] = event.version

    def stream_event(self, life: Life, event: StreamEvent) -> None:
        """A stream's event is about to be folded."""
        match event:
            case stream_events.StreamDrained():
                left = [s.transaction_id for s in self._of(life) if not s.has_ended]
                self._require(not left, f"{life.ref} is drained around {left}")
            case stream_events.StreamCommitStarted():
                waiting = [s for s in self._of(life) if s.order >= 0 and s.committed_step is None]
                waiting.sort(key=lambda s: s.order)
                first = [s.transaction_id for s in waiting[: len(event.transactions)]]
                batch = list(event.transactions)
                self._require(first == batch, f"{life.ref} commits {batch} before {first}")
            case stream_events.StreamRolled():
                self.rolls += 1
            case stream_events.StreamCommitFinished():
                self.batches += 1
                batch = list(life.works["commit"].batch)
                for seen in map(self.seen.__getitem__, batch):
                    if seen.is_carried and not seen.has_ended:
                        self._committed(seen)
                batch_left = [one for one in batch if not self.seen[one].has_ended]
                self._require(not batch_left, f"{life.ref} ends a batch with {batch_left} in it")

    # --- what is done in the stores -------------------------------------------------------------

    def appended(self, segment: str, piece: Piece) -> None:
        """A store has taken a piece."""
        self.steps += 1
        if not piece.writer:
            return
        self.taken[piece] = self.steps
        found = transaction_segment(segment)
        if found is not None:
            self.seen[found.transaction].wanted.append(piece)

    def carried(self, segment: str, block: bytes) -> None:
        """A segment took a block of a batch."""
        self.steps += 1
        for piece in pieces_in(block):
            seen = self.seen.get(piece.transaction)
            if seen is None:
                self._require(False, f"{segment} takes {piece}, and nobody submitted it")
                continue
            right = seen.outcome == COMMIT and segment in seen.life.planned
            self._require(right, f"{segment} takes {piece}, and it is of {seen}")
            self._require(not seen.has_ended, f"{segment} takes {piece} after the end of {seen}")

    def performed(self, operation: ControlOperation) -> None:
        """A store changed a transaction's segment."""
        found = transaction_segment(operation.segment)
        assert found is not None
        seen = self.seen.get(found.transaction)
        if seen is None:
            self._require(False, f"{operation.segment} is touched, and its transaction never was")
            return
        match operation:
            case CreateOperation():
                self._require(not seen.has_ended, f"{operation.segment} is made after the end")
            case DeleteOperation():
                right = seen.outcome == ABORT or not (
                    seen.outcome != COMMIT or seen.counts(found.part)
                )
                self._require(right, f"{operation.segment} is deleted, and is {seen.outcome}")

    def merged(self, life: Life, operation: MergeOperation) -> None:
        """A segment of a stream took transaction segments, whole."""
        for source in operation.sources:
            found = transaction_segment(source.segment)
            seen = self.seen.get(found.transaction) if found is not None else None
            if found is None or seen is None:
                self._require(False, f"{source.segment} is merged, and is no transaction's")
                continue
            self._require(
                seen.outcome == COMMIT and seen.life is life and seen.counts(found.part),
                f"{source.segment} is merged into {operation.segment}, and is of {seen}",
            )

    # --- what callers were told -----------------------------------------------------------------

    def told(self, info: TransactionInfo) -> None:
        """Somebody was told how a transaction stands."""
        seen = self.seen.get(info.transaction_id)
        if seen is None:
            self._require(False, f"{info.transaction_id} is told of, and is not stored")
            return
        outcome = _OUTCOMES.get(info.state, "")
        self._require(outcome in ("", seen.outcome), f"told {info}, and it is {seen}")
        ended = info.state.has_ended
        self._require(seen.has_ended or not ended, f"told {info}, and it has not ended")

    def told_ended(self, transaction: str, refused: str) -> None:
        """A commit or an abort was refused because of the other outcome."""
        seen = self.seen[transaction]
        self._require(
            seen.outcome not in ("", refused), f"{refused} of {transaction} is refused: {seen}"
        )

    def told_unknown(self, transaction: str) -> None:
        """Somebody was told that there is no such transaction, of the present life of a stream."""
        seen = self.seen[transaction]
        self._require(seen.life.is_over, f"{transaction} is said to be unknown: {seen}")

    def told_gone(self, transaction: str) -> None:
        """Somebody was told that its stream, or that life of it, is not there."""
        seen = self.seen[transaction]
        gone = seen.life.is_over or seen.life.status == "deleting"
        self._require(gone, f"the stream of {transaction} is said to be gone: {seen}")

    def promised(self, transaction: str, until_s: float) -> None:
        """Whoever pinged it may take its time until then."""
        seen = self.seen[transaction]
        seen.promised_s = max(seen.promised_s, until_s)

    # --- what must be so in the end -------------------------------------------------------------

    def at_rest(self) -> None:
        """Note everything that is not as it must be when nothing is left to do."""
        for seen in self.seen.values():
            ended = seen.outcome and seen.has_ended
            self._require(bool(ended), f"{seen.transaction_id} has not ended: {seen}")
        self._all_claimed()
        for name in self._segments.known:
            alive = transaction_segment(name) is not None and self._segments.state(name)
            self._require(not alive, f"{name} is left over")
        for lives in self._lives.values():
            for life in lives:
                of = {s.transaction_id: s for s in self._of(life)}
                for wrong in judge_life(self, self._segments, life, of):
                    self._require(False, wrong)

    # --- looking --------------------------------------------------------------------------------

    def _all_claimed(self) -> None:
        self._require(self._unclaimed is None, f"the outcome is not claimed: {self._unclaimed}")

    def _all_readable(self, seen: Seen) -> None:
        names = {name for epoch in seen.life.epochs for name in epoch}
        there = {
            piece
            for name in names
            for piece in self._segments.contents.get(name, ())
            if piece.transaction == seen.transaction_id
        }
        missing = [piece for piece in seen.due() if piece not in there]
        self._require(not missing, f"{seen.transaction_id} is committed without {missing}")

    def _none_left(self, seen: Seen) -> None:
        left = [
            name
            for name in self._segments.known
            if _is_of(transaction_segment(name), seen) and self._segments.state(name) is not None
        ]
        self._require(not left, f"{seen.transaction_id} has ended, and left {left}")

    def _of(self, life: Life) -> list[Seen]:
        return [seen for seen in self.seen.values() if seen.life is life]

    def _life(self, ref: str, incarnation: int) -> Life | None:
        for lives in self._lives.values():
            for life in lives:
                if (str(life.ref), life.incarnation) == (ref, incarnation):
                    return life
        return None


def _is_of(found: TransactionSegment | None, seen: Seen) -> bool:
    return found is not None and found.transaction == seen.transaction_id
