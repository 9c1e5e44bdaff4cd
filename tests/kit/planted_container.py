"""A container with a planted bug: answers that log nothing do not wait for what is pending.

A duplicate of an append that is not durable yet is then acknowledged before it, which is a lost
event if the power fails in between. The tests of the reply barrier must catch it.
"""

from anabranch.common.wire.messages import Appended
from anabranch.segstore.shell.container import Container
from anabranch.segstore.shell.replies import HeldAck, HeldReply, ReplyGate


class HastyGate(ReplyGate):
    """Holds an answer only if its own operation is pending."""

    def __init__(self, container: Container) -> None:
        super().__init__(container._throttle)
        self._seen = 0

    def hold(self, held: HeldAck | HeldReply) -> None:
        if held.barrier > self._seen:
            self._seen = held.barrier
            super().hold(held)
        elif isinstance(held, HeldAck):
            session = held.session.session
            last = held.last_event_number
            reply = Appended(session=session, last_event_number=last, length=held.length)
            held.session.send(reply, held.request_id)
        else:
            held.deliver(held.message)


class HastyContainer(Container):
    """Acknowledges duplicates from the pending state at once."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._gate = HastyGate(self)
