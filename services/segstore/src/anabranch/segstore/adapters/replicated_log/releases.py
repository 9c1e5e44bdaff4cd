"""Releases the messages of a led log that tier 2 has, except the last one.

A follower that catches up still needs older messages from the leader's journal. It delays a release
for some time, unless the disk is full, so that it need not be reset. The last message stays until
it holds up an old journal file: then the copy records its position anew.

State owned: the last operation that tier 2 has, and since when a release is delayed.
"""

from collections.abc import Callable, Iterable

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.logger import get_logger
from anabranch.segstore.adapters.replicated_log.led import Led
from anabranch.segstore.domain.log.stream.messages import Link

_log = get_logger(__name__)


class Releases:
    """The releases of one led log. `holds`: the messages behind which followers that catch up still
    need everything; None for each other follower."""

    def __init__(self, led: Led, holds: Callable[[], Iterable[Link | None]]) -> None:
        self._led = led
        self._holds = holds
        self.released = 0
        """The last operation that tier 2 has."""
        self._held_since_s: float | None = None
        self._unpinning = False

    def release(self, sequence: int) -> None:
        """Note that tier 2 has everything up to this operation; repeatable."""
        self.released = max(self.released, sequence)
        self._release()

    def release_held(self) -> None:
        """A follower has caught up: release the messages that were held for it."""
        if self._held_since_s is not None:
            self._release()

    def _release(self) -> None:
        held = [link.last_sequence for link in self._holds() if link is not None]
        upto = min([self.released, *held])
        if upto == self.released:
            self._held_since_s = None
        elif self._is_held_too_long():
            upto = self.released
        self._led.copy.release(upto)

    def _is_held_too_long(self) -> bool:
        around = self._led.around
        now_s = around.clock.monotonic()
        if self._held_since_s is None:
            self._held_since_s = now_s
        too_long = now_s - self._held_since_s > around.pace.hold_s
        return too_long or self._led.local.no_room is not None

    @property
    def may_unpin(self) -> bool:
        """Whether tier 2 has everything, so that the last message may be released, too."""
        return not self._unpinning and self._led.copy.history.end.last_sequence <= self.released

    async def unpin(self) -> None:
        """Record the position of the copy anew, and release its last message."""
        self._unpinning = True
        try:
            self._release()
            await self._led.copy.unpin()
        except Unavailable as error:
            _log.warning(
                "a released message still holds up a journal file",
                container=self._led.container, error=str(error),
            )  # fmt: skip
        finally:
            self._unpinning = False
