"""A leader's hold on one copy of this store: its messages are judged, stored and reported.

    append ──judge──► next: the copy's records ──synced──┐
              │                                          ├──► one report for a whole group commit
              ├─────► known ─────────────────────────────┘
              └─────► refused, which ends the hold

The leader keeps a window of messages without an answer. A message beyond the window is refused, so
the memory of a copy is bounded.
"""

from functools import partial

from anabranch.common.errors import CorruptJournal, LogNotHere, Unavailable
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.replicated_log.copy import Copy
from anabranch.segstore.domain.log.replica.history import Counted, Verdict
from anabranch.segstore.domain.log.stream.messages import Kind, decode_message, decode_opening
from anabranch.segstore.ports_replica import CopyCaller

WINDOW_COUNT = 64
WINDOW_SIZE_BYTES = 16 * 1024 * 1024
"""A message is taken if fewer messages, and fewer bytes, than these wait for their sync."""


class Follower:
    """The hold of one caller under one container epoch. `copy`: None while the store has none."""

    def __init__(
        self,
        container: int,
        container_epoch: int,
        caller: CopyCaller,
        copy: Copy | None,
        schedule: Schedule,
    ) -> None:
        self.container = container
        self.container_epoch = container_epoch
        self.caller = caller
        self.copy = copy
        self._schedule = schedule
        self._waiting_count = 0
        self._waiting_size = 0
        self._reporting = False
        self._ended = False

    def is_of(self, container_epoch: int, caller: CopyCaller) -> bool:
        """Whether this caller holds the copy under this epoch, which is still the promised one."""
        current = self.copy is None or self.copy.promised == container_epoch
        return self.caller is caller and self.container_epoch == container_epoch and current

    def end(self) -> None:
        """Report nothing more."""
        self._ended = True

    def append(self, data: bytes) -> None:
        """Store a message that continues the copy, and report its sync later.

        Raises CorruptJournal, FormatTooNew, LogNotHere, Deposed, Unavailable: the leader must
        connect again.
        """
        copy = self.copy
        if copy is None:
            raise LogNotHere("the store has no copy of the log", container=self.container)
        message, payload = decode_message(data, copy.seed, copy.history.end.number + 1)
        if message.container != self.container:
            raise CorruptJournal(
                "a message is one of another container",
                container=self.container, found=message.container,
            )  # fmt: skip
        opening = decode_opening(payload) if message.kind is Kind.OPENING else None
        match copy.history.judge(message, opening):
            case Verdict.KNOWN:
                copy.check(self.container_epoch)
                self._report_soon()
            case Verdict.NEXT:
                self._check_window()
                copy.append(
                    (data,), message, opening, partial(self._synced, len(data)),
                    container_epoch=self.container_epoch,
                )  # fmt: skip
                self._waiting_count += 1
                self._waiting_size += len(data)
            case Verdict.REFUSED:
                raise Unavailable(
                    "a message does not continue the copy of the log",
                    container=self.container, container_epoch=message.container_epoch,
                    number=message.number, last=copy.history.end.number,
                )  # fmt: skip

    def _check_window(self) -> None:
        if self._waiting_count >= WINDOW_COUNT or self._waiting_size >= WINDOW_SIZE_BYTES:
            raise Unavailable(
                "the leader sent more than its window permits",
                container=self.container, count=self._waiting_count, size=self._waiting_size,
            )  # fmt: skip

    def _synced(self, size: int, _: Counted) -> None:
        self._waiting_count -= 1
        self._waiting_size -= size
        self._report_soon()

    def _report_soon(self) -> None:
        if not self._reporting and not self._ended:
            self._reporting = True
            self._schedule(self._report)

    def _report(self) -> None:
        self._reporting = False
        copy = self.copy
        if self._ended or copy is None or copy.failure is not None:
            return
        if copy.promised == self.container_epoch:
            self.caller.synced(self.container, self.container_epoch, copy.synced)
