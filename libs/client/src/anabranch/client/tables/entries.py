"""Entries and their versions, and the updates of a batch."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from anabranch.common.errors import InvalidRequest

K = TypeVar("K")
V = TypeVar("V")


class Version(NamedTuple):
    """The version of an entry: every update of a key gives it a new one.

    ::

        version = await table.put("apple", 5)
        assert Version.parse(str(version)) == version

    Programs compare versions for equality alone. No two updates of a partition have the same
    version, in any life of the table.
    """

    segment_id: int
    segment_number: int
    number: int

    def __str__(self) -> str:
        return f"{self.segment_id}.{self.segment_number}.{self.number}"

    @classmethod
    def parse(cls, token: str) -> "Version":
        """Inverse of `str`. Raises InvalidRequest.

        ::

            version = Version.parse("0.17.4711")
        """
        parts = token.split(".")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
            raise _not_a_version(token)
        version = cls(*map(int, parts))
        if max(version) >= 1 << 63:
            raise _not_a_version(token)
        return version


def _not_a_version(token: str) -> InvalidRequest:
    return InvalidRequest(
        "the text is not a version",
        remedy="use the text of a version that the table returned", given=token[:80],
    )  # fmt: skip


class Entry(NamedTuple, Generic[K, V]):
    """One entry of a table.

    ::

        entry = await table.get("apple")
        print(entry.key, entry.value, entry.version)

    `expires_ms` is the Unix time in milliseconds at which the entry ends; 0: it stays until it is
    removed.
    """

    key: K
    value: V
    version: Version
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class Put(Generic[K, V]):
    """In a batch: put the value, whether or not the key has an entry.

    ::

        await table.update([Put(("shop", "apple"), 5)])
    """

    key: K
    value: V


@dataclass(frozen=True, slots=True)
class Insert(Generic[K, V]):
    """In a batch: put the value if the key has no entry.

    ::

        await table.update([Insert(("shop", "apple"), 5)])
    """

    key: K
    value: V


@dataclass(frozen=True, slots=True)
class Replace(Generic[K, V]):
    """In a batch: put the value if the entry of the key has this version.

    ::

        await table.update([Replace(("shop", "apple"), 6, version)])
    """

    key: K
    value: V
    version: Version


@dataclass(frozen=True, slots=True)
class Remove(Generic[K]):
    """In a batch: remove the entry of the key; with a `version`, only if the entry has it.

    ::

        await table.update([Remove(("shop", "apple"), version)])
    """

    key: K
    version: Version | None = None


TableUpdate = Put[K, V] | Insert[K, V] | Replace[K, V] | Remove[K]
