"""`TransactionTimers` in memory: for tests. One event loop owns it; nothing here waits."""

from collections.abc import Mapping, Sequence

from anabranch.common.errors import Unavailable


class InMemoryTimers:
    """`away` makes every call fail, as without a server; `forget` is a server that lost all."""

    def __init__(self) -> None:
        self._deadlines_ms: dict[int, dict[str, int]] = {}
        self.away = False

    async def arm(self, bucket: int, deadlines_ms: Mapping[str, int]) -> None:
        """See `TransactionTimers.arm`."""
        self._known(bucket).update(deadlines_ms)

    async def due(self, bucket: int, now_ms: int, limit: int) -> Sequence[str]:
        """See `TransactionTimers.due`."""
        known = self._known(bucket)
        passed = sorted((at, member) for member, at in known.items() if at <= now_ms)
        members = [member for _, member in passed[:limit]]
        for member in members:
            del known[member]
        return members

    async def close(self) -> None:
        """See `TransactionTimers.close`."""

    def forget(self) -> None:
        """Lose everything."""
        self._deadlines_ms.clear()

    def armed(self, bucket: int) -> Mapping[str, int]:
        """The deadlines of a bucket's members."""
        return dict(self._deadlines_ms.get(bucket, {}))

    def _known(self, bucket: int) -> dict[str, int]:
        if self.away:
            raise Unavailable("the timer wheel is away")
        return self._deadlines_ms.setdefault(bucket, {})
