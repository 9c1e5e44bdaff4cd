"""Contents and names on a simulated disk: what a program sees, and what the platters hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.simdisk import Survival

SECTOR_SIZE_BYTES = 512


@dataclass(slots=True)
class Inode:
    visible: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        if not data:
            return
        _put(self.visible, offset, data)
        self.dirty.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.dirty:
            _put(self.durable, offset, data)
        self.dirty.clear()

    def stored(self) -> bytearray:
        """What a direct read shows: the platters, after dirty pages were written to them. Whether
        these survive is still open; pages that a failed sync left clean are not written."""
        image = bytearray(self.durable)
        for offset, data in self.dirty:
            _put(image, offset, data)
        return image

    def lose_power(self, survival: "Survival") -> None:
        for offset, data in self.dirty:
            for start, piece in _surviving(offset, data, survival):
                _put(self.durable, start, piece)
        self.dirty.clear()
        self.visible = bytearray(self.durable)


def _put(image: bytearray, offset: int, data: bytes) -> None:
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


def _surviving(offset: int, data: bytes, survival: "Survival") -> list[tuple[int, bytes]]:
    first = offset // SECTOR_SIZE_BYTES
    last = (offset + len(data) - 1) // SECTOR_SIZE_BYTES
    kept = survival.keeps_sectors(last - first + 1) if data else []
    if all(kept):
        return [(offset, data)]
    pieces = []
    for index, keep in enumerate(kept):
        start = max(offset, (first + index) * SECTOR_SIZE_BYTES)
        end = min(offset + len(data), (first + index + 1) * SECTOR_SIZE_BYTES)
        if keep:
            pieces.append((start, data[start - offset : end - offset]))
    return pieces


Names = dict[str, Inode | None]
"""Path → inode, or None for a directory."""


@dataclass(frozen=True, slots=True)
class NameChange:
    """One atomic change of a directory's names."""

    directories: frozenset[str]
    added: Mapping[str, Inode | None]
    removed: tuple[str, ...] = ()

    def apply(self, names: Names) -> None:
        for path in self.removed:
            names.pop(path, None)
        names.update(self.added)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def reachable(names: Names) -> Names:
    """Without the names whose directory was lost."""
    kept: Names = {"": None}
    for path in sorted(names, key=lambda name: name.count("/")):
        parent = parent_of(path)
        if parent in kept and kept[parent] is None:
            kept[path] = names[path]
    return kept
