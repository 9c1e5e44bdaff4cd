"""The port `Leases`: at most one owner of each number at a time, for as long as it renews.

A lease saves work, but protects nothing. Its server may forget everything at any moment, return
with week-old data, or grant a lease while the last owner still believes in its own. Work under a
lease must therefore be safe if a second owner does it too.

All times are the server's own: callers give durations and never compare clocks. A call ends within
a few seconds; it raises `Unavailable` if the server does not answer, and may then have taken effect
or not.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that has not expired. `token` grows with every change of owner of this number
    until the server forgets it; it distinguishes two tenures and fences nothing."""

    owner: str
    token: int


class Leases(Protocol):
    async def read(self) -> Mapping[int, Lease]:
        """Every lease that has not expired, by number. An unreadable lease counts as expired.

        Raises Unavailable.
        """
        ...

    async def take(self, numbers: Collection[int], owner: str) -> Mapping[int, Lease]:
        """Take all of `numbers` that are free, have expired or are already the owner's.

        They last for the lease time from now. Returns the leases of `numbers` that the owner holds.
        Raises Unavailable.
        """
        ...

    async def release(self, numbers: Collection[int], owner: str) -> None:
        """End the owner's leases of `numbers`; others stay. Raises Unavailable."""
        ...

    async def close(self) -> None:
        """Drop the connection; leases continue until they expire."""
        ...
