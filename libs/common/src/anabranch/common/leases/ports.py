"""The port `Leases`: at most one owner of each number at a time, for as long as it renews.

A lease saves work; it protects nothing. Its server may forget everything at any moment, come back
with what it knew a week ago, or grant a lease while the last owner still believes in its own. So
whoever does something under a lease does it in a way that a second owner cannot spoil.

All times are the server's own: callers give durations and never compare clocks. A call ends
within a few seconds, by `Unavailable` if the server does not answer; what it was about may then
have been done or not.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that has not ended. `token` grows with every change of owner of this number,
    until the server forgets it; it tells two tenures apart and fences nothing."""

    owner: str
    token: int


class Leases(Protocol):
    async def read(self) -> Mapping[int, Lease]:
        """Every lease that has not ended, by number. What cannot be understood counts as ended.

        Raises Unavailable.
        """
        ...

    async def take(self, numbers: Collection[int], owner: str) -> Mapping[int, Lease]:
        """Take those that are free, has ended or are the owner's already, all until the lease
        time from now; returns what the owner holds of `numbers`. Raises Unavailable."""
        ...

    async def release(self, numbers: Collection[int], owner: str) -> None:
        """End those of `numbers` that are the owner's; others stay. Raises Unavailable."""
        ...

    async def close(self) -> None:
        """Drop the connection; leases go on until they end."""
        ...
