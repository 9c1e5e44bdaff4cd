"""Known bugs of the log in a stream, planted on purpose."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from anabranch.segstore.adapters.jetstream_log import view as view_module
from anabranch.segstore.adapters.jetstream_log.view import StreamView
from anabranch.segstore.adapters.jetstream_log.window import Sent, WholeFrame
from anabranch.segstore.domain.log.stream.messages import Kind, Message
from anabranch.segstore.domain.log.stream.purging import Purge, purge_after
from anabranch.segstore.domain.log.stream.resolve import Resolution, StreamFrame, Verdict
from anabranch.segstore.ports_stream import PublishUnknown


def fence_by_number_alone() -> AbstractContextManager[object]:
    """The reader trusts the condition on the last place, and looks at no epoch and no chain."""

    def add_frame(self: Resolution, place: int, message: Message) -> Verdict:
        if self.frames and message.first_sequence <= self.frames[-1].last_sequence:
            return Verdict.VOID
        self._partial = None if message.part_index == 0 else self._partial
        self._take(place, message)
        return Verdict.COUNTS

    return patch.object(Resolution, "_add_frame", add_frame)


def answer_from_the_wrong_place() -> AbstractContextManager[object]:
    """Any answer confirms a message, whatever place it names."""
    return patch.object(StreamView, "_counts", lambda _self, _sent, _place: True)


def void_messages_replayed() -> AbstractContextManager[object]:
    """A message behind a gap of its chain counts."""

    def continues(self: Resolution, message: Message) -> bool:
        return message.number > self.end.number

    return patch.object(Resolution, "_continues", continues)


def opening_purged() -> AbstractContextManager[object]:
    """A release removes the opening that governs the first kept frame."""

    def purge(frames: Sequence[StreamFrame], applied: int, epoch: int, opening_place: int) -> Purge:
        chosen = purge_after(frames, applied, epoch, opening_place)
        return Purge(chosen.frames_below, chosen.openings_below + 1)

    return patch.object(view_module, "purge_after", purge)


@contextmanager
def resent_after_an_unknown_outcome() -> Iterator[None]:
    """A message without a clear answer is sent again, behind what the stream holds by then."""
    publish, answered = StreamView._publish, StreamView._answered
    sent_data: dict[tuple[StreamView, int], bytes] = {}

    def remember(
        self: StreamView, number: int, place: int, data: bytes, completes: WholeFrame | None
    ) -> None:
        sent_data[self, number] = data
        publish(self, number, place, data, completes)

    def answer(self: StreamView, sent: Sent, done: asyncio.Future[int]) -> None:
        unknown = not done.cancelled() and isinstance(done.exception(), PublishUnknown)
        if unknown and not self.ended:
            self._around.spawn(resend(self, sent))
        else:
            answered(self, sent, done)

    async def resend(self: StreamView, sent: Sent) -> None:
        facts = await self._stream.describe()
        assert facts is not None
        again = self._stream.publish(Kind.FRAME, sent_data[self, sent.number], facts.last_place)
        shift = facts.last_place + 1 - sent.place
        sent.place += shift
        self._opening_place += shift
        again.add_done_callback(lambda done: answered(self, sent, done))

    with (
        patch.object(StreamView, "_publish", remember),
        patch.object(StreamView, "_answered", answer),
    ):
        yield


STREAM_LOG_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "fence by number alone": fence_by_number_alone,
    "answer from the wrong place": answer_from_the_wrong_place,
    "void messages replayed": void_messages_replayed,
    "opening purged": opening_purged,
    "resent after an unknown outcome": resent_after_an_unknown_outcome,
}
