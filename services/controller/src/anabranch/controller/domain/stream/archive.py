"""Selects the epochs that move from a stream's state to a history chunk, and encodes chunks. Pure.

A stream's state would grow with its age, and a snapshot of it must stay small. Its oldest epochs
therefore move to chunks, which never change. A chunk is the shortest run of epochs with
`CHUNK_ENTRIES` segments created or sealed. It depends only on the history before it, so every
controller makes the same chunk at any time. Only causes may differ, because earlier releases did
not know them: a stored chunk is accepted if it holds the same epochs apart from causes. The current
epoch stays in the state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from anabranch.common.errors import CorruptEvent, FormatTooNew
from anabranch.controller.domain.stream.causes import EpochCause
from anabranch.controller.domain.stream.history import EpochRecord

CHUNK_ENTRIES = 1000
CHUNK_FORMAT = 2
"""1: the epochs had no causes."""


@dataclass(frozen=True, slots=True)
class HistoryChunk:
    """Consecutive epochs, the oldest first."""

    format: int
    epochs: tuple[EpochRecord, ...]


@dataclass(frozen=True, slots=True)
class _Numbered:
    """The field that chunks of all formats share."""

    format: int


_CHUNKS, _NUMBERED = TypeAdapter(HistoryChunk), TypeAdapter(_Numbered)


def due_chunk(epochs: Sequence[EpochRecord]) -> tuple[EpochRecord, ...]:
    """The epochs of the next chunk; none if no chunk is due."""
    entry_count = 0
    for index, record in enumerate(epochs[:-1], start=1):
        entry_count += len(record.created) + len(record.sealed)
        if entry_count >= CHUNK_ENTRIES:
            return tuple(epochs[:index])
    return ()


def encode_chunk(epochs: Sequence[EpochRecord]) -> bytes:
    """The chunk that holds these epochs."""
    return _CHUNKS.dump_json(HistoryChunk(CHUNK_FORMAT, tuple(epochs)))


def holds(body: bytes, epochs: Sequence[EpochRecord]) -> bool:
    """Whether a stored chunk holds these epochs, regardless of causes.

    A controller of an earlier release, which knew no causes, may have stored the chunk, or the
    snapshot from which another controller made it. Raises CorruptEvent, FormatTooNew.
    """
    found = decode_chunk(body, epochs[0].stream_epoch)
    return _without_causes(found) == _without_causes(epochs)


def _without_causes(epochs: Sequence[EpochRecord]) -> list[EpochRecord]:
    return [replace(record, cause=EpochCause("-")) for record in epochs]


def decode_chunk(body: bytes, first_epoch: int) -> tuple[EpochRecord, ...]:
    """The epochs of a chunk that begins with `first_epoch`. Raises CorruptEvent, FormatTooNew."""
    try:
        found = _NUMBERED.validate_json(body).format
        if found > CHUNK_FORMAT:
            raise FormatTooNew(
                "a newer release wrote a history chunk", found=found, supported=CHUNK_FORMAT
            )
        chunk = _CHUNKS.validate_json(body)
    except ValidationError as error:
        raise CorruptEvent("a history chunk cannot be understood") from error
    numbers = [record.stream_epoch for record in chunk.epochs]
    if not numbers or numbers != list(range(first_epoch, first_epoch + len(numbers))):
        raise CorruptEvent("a history chunk holds other epochs", expected=first_epoch)
    return chunk.epochs
