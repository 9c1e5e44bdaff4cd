"""The messages that a view has sent and the stream has not confirmed, in order."""

import asyncio
from collections import deque
from dataclasses import dataclass

from anabranch.segstore.domain.log.stream.resolve import StreamFrame
from anabranch.segstore.ports import FrameContents

MESSAGES_MAX = 64
SIZE_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WholeFrame:
    """A frame that is durable once its last part is."""

    contents: FrameContents
    frame: StreamFrame


@dataclass(slots=True)
class Sent:
    """A message in flight: its number in the epoch, and the only place at which it counts.

    `completes`: the frame whose last part it is.
    """

    number: int
    place: int
    size: int
    sent_at_s: float
    answer: asyncio.Future[int]
    completes: WholeFrame | None
    confirmed: bool = False


class Window:
    """A bounded queue of sent messages, which leave it in order."""

    def __init__(self) -> None:
        self._sent: deque[Sent] = deque()
        self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether another frame may be sent. One frame may exceed the limits."""
        return len(self._sent) < MESSAGES_MAX and self._size < SIZE_BYTES_MAX

    @property
    def oldest(self) -> Sent | None:
        """The message that has waited the longest."""
        return self._sent[0] if self._sent else None

    def add(self, sent: Sent) -> None:
        """Append a message."""
        self._sent.append(sent)
        self._size += sent.size

    def next_confirmed(self) -> Sent | None:
        """Remove the oldest message if it is confirmed."""
        if not self._sent or not self._sent[0].confirmed:
            return None
        sent = self._sent.popleft()
        self._size -= sent.size
        return sent

    def abandon(self) -> None:
        """Forget all messages; their answers count no more."""
        for sent in self._sent:
            sent.answer.cancel()
        self._sent.clear()
        self._size = 0
