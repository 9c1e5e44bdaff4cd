"""The reply barrier: no answer leaves before everything that it depends on is durable.

Answers are decided against the *pending* state, so they hold only once all operations that were
pending at that moment are synced. An answer's barrier is the last sequence number assigned by then.
Barriers never decrease, so one queue in order of decision is enough.

Acknowledgements of appends are cumulative: a release merges those of one session into a single
`Appended`, but sends it before any later answer of another kind, so that the order of answers is
the order of decisions. Two kinds of answers overtake the queue, so that a full disk delays no
reader: an Overloaded refusal outside an append session, which decided nothing, and an answer from
the durable state.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from anabranch.common.errors import AnabranchError, Overloaded
from anabranch.common.wire.messages import Appended, AppendSetup, Failed, Message, failed
from anabranch.segstore.shell.container.sessions import AppendSession
from anabranch.segstore.shell.container.throttle import Throttle

Deliver = Callable[[Message], None]

HELD_SIZE_BYTES = 256
"""The bytes that a held answer counts for in the back-pressure on pending bytes."""


class HeldAck(NamedTuple):
    """An append's acknowledgement."""

    barrier: int
    session: AppendSession
    request_id: int
    last_event_number: int
    length: int
    event_count: int = -1


class HeldReply(NamedTuple):
    """An answer other than an acknowledgement."""

    barrier: int
    deliver: Deliver
    message: Message


class ReplyGate:
    """Answers that wait for the log, in order of decision."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._held: deque[HeldAck | HeldReply] = deque()
        self._durable = 0
        self._failure: AnabranchError | None = None

    def start(self, durable: int) -> None:
        """Everything up to `durable` was recovered."""
        self._durable = durable

    def hold(self, held: HeldAck | HeldReply) -> None:
        """Deliver the answer when its barrier is durable, which may be at once."""
        if isinstance(held, HeldReply) and (
            held.barrier <= self._durable or _depends_on_nothing(held.message)
        ):
            held.deliver(held.message)
            return
        if self._failure is not None:
            _fail(held, self._failure)
            return
        assert not self._held or held.barrier >= self._held[-1].barrier
        self._held.append(held)
        self._throttle.pending += HELD_SIZE_BYTES
        if held.barrier <= self._durable:
            self._deliver_ready()

    def acknowledge(self, durable: int) -> None:
        """Deliver the acknowledgements up to `durable`, which is synced, as far as no answer of
        another kind comes before them."""
        acks: dict[AppendSession, HeldAck] = {}
        held = self._held
        count = 0
        while held and isinstance(entry := held[0], HeldAck) and entry.barrier <= durable:
            held.popleft()
            count += 1
            before = acks.get(entry.session)
            if before is None or entry.last_event_number >= before.last_event_number:
                acks[entry.session] = entry
        for session, ack in acks.items():
            reply = Appended(
                session=session.session,
                last_event_number=ack.last_event_number,
                length=ack.length,
                event_count=ack.event_count,
            )
            session.send(reply, ack.request_id)
        self._throttle.forget_pending(count * HELD_SIZE_BYTES)

    def release(self, durable: int) -> None:
        """Deliver all answers up to `durable`, which is synced, applied and indexed."""
        assert durable >= self._durable
        self._durable = durable
        self._deliver_ready()

    def _deliver_ready(self) -> None:
        held = self._held
        while held and held[0].barrier <= self._durable:
            if isinstance(entry := held[0], HeldReply):
                held.popleft()
                entry.deliver(entry.message)
                self._throttle.forget_pending(HELD_SIZE_BYTES)
            else:
                self.acknowledge(self._durable)

    def fail(self, error: AnabranchError) -> None:
        """Fail all held answers in order, and later ones: their operations will not become durable
        here."""
        self._failure = error
        held, self._held = self._held, deque()
        for entry in held:
            _fail(entry, error)
        self._throttle.forget_pending(len(held) * HELD_SIZE_BYTES)


def _fail(held: HeldAck | HeldReply, error: AnabranchError) -> None:
    if isinstance(held, HeldAck):
        held.session.alive = False
        held.session.send(failed(error, held.session.session), held.request_id)
    else:
        held.deliver(failed(error, _session_of(held.message)))


def _depends_on_nothing(message: Message) -> bool:
    return isinstance(message, Failed) and message.code == Overloaded.code and not message.session


def _session_of(message: Message) -> int:
    """The append session of a held answer; 0 if it has none."""
    return message.session if isinstance(message, AppendSetup | Failed) else 0
