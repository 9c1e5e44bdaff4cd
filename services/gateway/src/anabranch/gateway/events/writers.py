"""The open writers: one per recently used destination, up to a maximum.

A destination is a stream, a transaction or a part of one, by its name (see `destinations`).
"""

from anabranch.gateway.bounds.leases import Leases
from anabranch.gateway.events.destinations import Writer, is_within


class OpenWriters(Leases[Writer]):
    """The open writers, by destination."""

    def forget(self, destination: str) -> None:
        """Close the writers to the destination, or within it, because it is ending."""
        self.forget_where(lambda name: is_within(name, destination))
