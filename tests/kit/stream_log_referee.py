"""What the outside knows of a container whose log lives in a stream: one history, and no loss.

An operation is a number that no other operation has. The history that an owner finds at its opening
is what tier 2 has and what the log replays after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.common.errors import Deposed

OPERATION_SIZE_BYTES = 8


def encoded(operations: Sequence[int], padding: int = 0) -> bytes:
    """The payload of a frame."""
    body = b"".join(number.to_bytes(OPERATION_SIZE_BYTES, "little") for number in operations)
    return body + bytes(padding)


def decoded(payload: bytes, count: int) -> list[int]:
    """The operations of a frame."""
    ends = range(0, count * OPERATION_SIZE_BYTES, OPERATION_SIZE_BYTES)
    return [int.from_bytes(payload[at : at + OPERATION_SIZE_BYTES], "little") for at in ends]


@dataclass(slots=True)
class Tiered:
    """Tier 2 of the container: fenced by container epoch, as the manifests are."""

    container_epoch: int = 0
    history: list[int] = field(default_factory=list)

    def fence(self, container_epoch: int) -> list[int]:
        """Depose older owners. Raises Deposed."""
        if container_epoch <= self.container_epoch:
            raise Deposed("a newer owner has fenced tier 2")
        self.container_epoch = container_epoch
        return list(self.history)

    def flush(self, container_epoch: int, history: Sequence[int]) -> None:
        """Store the history up to here. Raises Deposed."""
        if container_epoch != self.container_epoch:
            raise Deposed("a newer owner has fenced tier 2")
        assert list(history[: len(self.history)]) == self.history, "tier 2 has another history"
        self.history = list(history)


@dataclass(slots=True)
class Referee:
    """What was acknowledged, by sequence number from 1, and what each opening found."""

    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sequence number → operation, and the container epoch of its owner."""
    found: dict[int, list[int]] = field(default_factory=dict)

    def acknowledge(
        self, container_epoch: int, first_sequence: int, operations: Sequence[int]
    ) -> None:
        """An owner acknowledged operations."""
        for sequence, number in enumerate(operations, start=first_sequence):
            told = (number, container_epoch)
            known = self.acknowledged.setdefault(sequence, told)
            assert known == told, f"operation {sequence} was acknowledged twice, differently"

    def opened(self, container_epoch: int, history: list[int]) -> None:
        """An owner finished its opening, and found this history."""
        for epoch, other in self.found.items():
            older, newer = (other, history) if epoch < container_epoch else (history, other)
            assert newer[: len(older)] == older, f"the openings {epoch}, {container_epoch} diverge"
        self.found[container_epoch] = history
        self.check(container_epoch, history)

    def check(self, container_epoch: int, history: Sequence[int]) -> None:
        """Everything that owners of lower epochs have acknowledged is in the history."""
        for sequence, (number, epoch) in self.acknowledged.items():
            if epoch >= container_epoch:
                continue
            assert sequence <= len(history), f"acknowledged operation {sequence} is lost"
            assert history[sequence - 1] == number, f"operation {sequence} has other contents"
