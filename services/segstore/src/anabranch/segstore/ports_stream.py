"""Port of an event log that keeps the logs of containers: one stream per log.

Two adapters exist: NATS JetStream, and a simulated one in the tests. Both have these properties:

- A stored message has a place, a number that grows. Places of removed messages stay empty.
- A publication names the last place that it expects. The stream's leader checks this when it
  proposes the message, not when the message is stored. If an earlier proposal fails, a message
  lands at a lower place than expected, and is still acknowledged.
- The outcome of a publication without an answer is unknown, and may still change.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from anabranch.segstore.domain.log.stream.messages import Kind


class PublishRefused(Exception):
    """The stream ends at another place than the publication expected. Nothing was stored."""


class PublishUnknown(Exception):
    """No answer came, or none that tells the outcome. The message may be stored, even later."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream as its leader describes it.

    `created` is the time of creation in nanoseconds, `last_place` the place of the newest message
    (0: there never was one), `peers` the names of the servers that store it.
    """

    created: int
    last_place: int
    peers: tuple[str, ...]


class RemoteStream(Protocol):
    """The stream of one log. All calls come from the event loop's thread."""

    @property
    def message_size_max(self) -> int:
        """The most bytes of one message."""
        ...

    async def describe(self) -> StreamFacts | None:
        """The stream as its leader knows it; None if there is none. Raises Unavailable."""
        ...

    def publish(self, kind: Kind, data: bytes, expected_last: int | None) -> asyncio.Future[int]:
        """Send a message that expects the stream to end at `expected_last`, and do not wait.

        With None, it is stored wherever the stream ends. Messages are sent in the order of the
        calls. The result is the message's place; the future raises PublishRefused or
        PublishUnknown, or stays open if no answer comes.
        """
        ...

    def read(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        """The messages from place `first` to `last` that the answering server has, in order.

        A server that lags behind yields fewer, without a hole. Raises Unavailable.
        """
        ...

    async def get(self, place: int) -> bytes | None:
        """The message at a place, from the leader; None if it was removed. Raises Unavailable."""
        ...

    async def newest_opening(self) -> bytes | None:
        """The newest opening message, from the leader. Raises Unavailable."""
        ...

    async def purge_below(self, *, frames: int, openings: int) -> None:
        """Remove the frames below one place, and only then the openings below the other.

        Repeatable. Raises Unavailable if some may be left.
        """
        ...


class RemoteStreams(Protocol):
    """The engine that keeps the streams."""

    def stream(self, log_id: str) -> RemoteStream:
        """The stream of a log, whether it exists or not."""
        ...

    async def create(self, log_id: str) -> None:
        """Create the log's stream; harmless if it exists. Raises Unavailable."""
        ...

    async def delete(self, log_id: str) -> None:
        """Delete the log's stream; harmless if there is none. Raises Unavailable."""
        ...

    async def check_synced(self, peers: tuple[str, ...]) -> None:
        """Require that every one of these servers syncs each write before it answers.

        Raises LogNotSynced, Unavailable.
        """
        ...
