"""A container's log as a sequence of frames: overlaps resolved, continuity checked."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from anabranch.common.errors import CorruptJournal


class FrameEntry(Struct, frozen=True, gc=False):
    """The place of a container's frame, and the operations that it holds."""

    container_epoch: int
    first_sequence: int
    last_sequence: int
    file_id: int
    position: int
    payload_size: int


def resolve(entries: Iterable[FrameEntry]) -> list[FrameEntry]:
    """The frames that count, of one container, in journal order.

    The higher container epoch replaces lower ones from its first sequence number on, in either
    order of writing. Raises CorruptJournal if this would divide a frame.
    """
    kept: list[FrameEntry] = []
    for entry in entries:
        if kept and entry.container_epoch < kept[-1].container_epoch:
            continue
        while kept and _gives_way(kept[-1], entry):
            kept.pop()
        if kept and kept[-1].last_sequence >= entry.first_sequence:
            raise CorruptJournal(
                "two frames hold the same operations",
                file=f"{entry.file_id:016x}", position=entry.position,
                first_sequence=entry.first_sequence, last_sequence=kept[-1].last_sequence,
            )  # fmt: skip
        kept.append(entry)
    return kept


def _gives_way(older: FrameEntry, newer: FrameEntry) -> bool:
    return (
        older.container_epoch < newer.container_epoch
        and older.first_sequence >= newer.first_sequence
    )


def continuous(entries: Iterable[FrameEntry], after_sequence: int) -> Iterator[FrameEntry]:
    """The frames that hold operations after `after_sequence`. Raises CorruptJournal on a gap."""
    reached = after_sequence
    for entry in entries:
        if entry.last_sequence <= after_sequence:
            continue
        if entry.first_sequence > reached + 1:
            raise CorruptJournal(
                "operations are missing from the log",
                after=reached, found=entry.first_sequence, file=f"{entry.file_id:016x}",
            )  # fmt: skip
        reached = entry.last_sequence
        yield entry
