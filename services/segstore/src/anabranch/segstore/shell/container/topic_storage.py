"""The storage size of a store: how much the partitions that it leads may hold together.

    taking records ──used > limit──► full ──used ≤ 95 % of the limit──► taking records

The reporter of live numbers measures the use every 0.4 s. An append only looks at `full`, so a
store may exceed the limit by what its writers send in that time.
"""

from anabranch.common.errors import OutOfStorage

FREE_SHARE = 0.05
"""The free share of the limit at which a full store takes records again."""


class TopicStorage:
    """State owned: the bytes in use as last measured, and whether the store is full.

    `limit_bytes` 0: there is no limit.
    """

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.full = False

    def measured(self, used_bytes: int) -> None:
        """Note the bytes that the partitions hold now."""
        self.used_bytes = used_bytes
        if not self.limit_bytes:
            return
        share = 1 - FREE_SHARE if self.full else 1
        self.full = used_bytes > share * self.limit_bytes

    def refusal(self, container: int) -> OutOfStorage:
        """The error of an append while the store is full."""
        return OutOfStorage(
            "the storage size of the store is used up",
            container=container, used=self.used_bytes, limit=self.limit_bytes,
        )  # fmt: skip


NO_LIMIT = TopicStorage()
"""For containers of streams. It is never measured, so it is never full."""
