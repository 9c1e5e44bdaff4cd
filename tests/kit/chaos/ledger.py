"""What one writer tried and what it was told, in a file outside of the cluster's directory.

A line is written after the acknowledgement, so what the ledger says is true was true for the
writer. Event number n of writer w has the key ``w-<n mod KEYS>`` and says both in its payload, so a
range of numbers names every (writer, key, number) in it.

    try <last>                              events up to this one are on their way
    ack <last> <begun_s> <acked_s>          everything up to it is acknowledged; times are those of
                                            the machine's monotonic clock, alike in all processes
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

KEYS = 7
SYNC_EVERY_ACKS = 16
_FILLER_SIZES = (0, 3, 40, 400, 2500)


def key_of(writer: int, number: int) -> str:
    """The routing key of a writer's event."""
    return f"{writer}-{number % KEYS}"


def event_of(writer: int, number: int) -> bytes:
    """A writer's event `number` (from 0): it says who it is, whatever its size."""
    return b"%d:%d:%s" % (writer, number, b"." * _FILLER_SIZES[number % len(_FILLER_SIZES)])


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch that was begun and acknowledged, in seconds of the monotonic clock."""

    begun_s: float
    acked_s: float


@dataclass(slots=True)
class LedgerContent:
    """How many events the writer tried and was promised (always the first ones), and when."""

    tried: int = 0
    acknowledged: int = 0
    acks: list[Ack] = field(default_factory=list)

    def add(self, lines: Iterable[str]) -> None:
        """Take further lines."""
        for line in lines:
            verb, last, *times = line.split()
            if verb == "try":
                self.tried = int(last) + 1
            else:
                self.acknowledged = int(last) + 1
                self.acks.append(Ack(*map(float, times)))

    def answered_after(self, at_s: float) -> bool:
        """Whether a batch that was begun after that moment is acknowledged."""
        return bool(self.acks) and self.acks[-1].begun_s > at_s


class LedgerFile:
    """The writing side. Synced every few acknowledgements, and at the end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("x")
        self._unsynced = 0

    def tried(self, last: int) -> None:
        """Events up to `last` are about to be sent."""
        self._write(f"try {last}\n")

    def acknowledged(self, last: int, begun_s: float, acked_s: float) -> None:
        """Everything up to `last` is acknowledged."""
        self._write(f"ack {last} {begun_s:.6f} {acked_s:.6f}\n")
        self._unsynced += 1
        if self._unsynced == SYNC_EVERY_ACKS:
            self.sync()

    def _write(self, line: str) -> None:
        self._file.write(line)
        self._file.flush()

    def sync(self) -> None:
        """Make durable what was written."""
        os.fdatasync(self._file.fileno())
        self._unsynced = 0

    def close(self) -> None:
        self.sync()
        self._file.close()


class LedgerFollower:
    """The reading side: what a ledger has so far; half a last line waits until it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.content = LedgerContent()

    def read_on(self) -> LedgerContent:
        """Take what was added since. A ledger that does not exist yet is empty."""
        if not self._path.exists():
            return self.content
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        self.content.add(whole.decode("ascii").splitlines())
        return self.content
