"""Whether two readings of a stream hold the same events of each key in the same order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32


@dataclass(slots=True)
class KeyHistories:
    """For each key the count and a checksum of its events in the order of one reading."""

    by_key: dict[str | None, tuple[int, int]] = field(default_factory=dict)

    def take(self, payloads: Sequence[bytes], keys: Sequence[str | None]) -> None:
        """Further events, in the order in which they were read."""
        for payload, key in zip(payloads, keys, strict=True):
            count, checksum = self.by_key.get(key, (0, 0))
            self.by_key[key] = count + 1, crc32(payload, checksum)


def divergent(readings: Mapping[str, KeyHistories]) -> list[str]:
    """The keys whose events differ between two readings, each with what was found."""
    if not readings:
        return []
    (first_name, first), *others = readings.items()
    found = []
    for name, other in others:
        for key in sorted(first.by_key.keys() | other.by_key.keys(), key=str):
            one, two = first.by_key.get(key), other.by_key.get(key)
            if one != two:
                found.append(f"key {key}: {one} from {first_name}, {two} from {name}")
    return found
