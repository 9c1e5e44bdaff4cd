"""The frames that a leader has sent and not acknowledged, in order, with their messages.

A follower that catches up gets these messages from here, because the leader's own copy may not have
synced them yet.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.common.storage.ports import Buffer
from anabranch.segstore.domain.log.replica.history import Counted, Position
from anabranch.segstore.ports import FrameContents

MESSAGES_MAX = 64
SIZE_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame in flight, and its message as it was sent."""

    contents: FrameContents
    counted: Counted
    message: Sequence[Buffer]


class Window:
    """A bounded queue of sent frames of one container epoch, which leave it in order."""

    def __init__(self) -> None:
        self._sent: deque[Sent] = deque()
        self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether another frame may be sent. One frame may exceed the limit of bytes."""
        return len(self._sent) < MESSAGES_MAX and self._size < SIZE_BYTES_MAX

    @property
    def empty(self) -> bool:
        """Whether every sent frame is acknowledged."""
        return not self._sent

    def add(self, sent: Sent) -> None:
        """Append a frame."""
        self._sent.append(sent)
        self._size += sent.contents.size

    def take(self, through: Position) -> Sent | None:
        """Remove the oldest frame if it is not behind this position."""
        if not self._sent or self._sent[0].counted.position > through:
            return None
        sent = self._sent.popleft()
        self._size -= sent.contents.size
        return sent

    def message_at(self, position: Position) -> Sequence[Buffer] | None:
        """The message at a position, if it is in flight."""
        if not self._sent:
            return None
        epoch, number = position
        first_epoch, first = self._sent[0].counted.position
        if epoch != first_epoch or not first <= number < first + len(self._sent):
            return None
        return self._sent[number - first].message

    def abandon(self) -> None:
        """Forget all frames."""
        self._sent.clear()
        self._size = 0
