"""`TransactionTimers` in Redis: one sorted set per bucket, with members scored by deadline.

A sorted set replaces the time slots of an in-process timer wheel for three reasons. The server
keeps the order anyway, at O(log n) per member. No cursor can be lost with the server or skip a
slot. And a ping moves a deadline with one write, wherever the deadline lies.

A set expires a day after its last use. The scripts use commands of Redis 6.2 and trust no data: a
key of another type is deleted. A foreign member of the set is returned when its score has passed,
and the caller does not know it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from anabranch.common.adapters.redis_scripts import CALL_S_MAX, PROTOCOL, RedisScripts
from anabranch.common.errors import Unavailable

IDLE_MAX = 4
KEPT_MS = 24 * 3600 * 1000
PART_COUNT_MAX = 1000
"""Members in one call, so that no script blocks the server for long."""
_REMEDY = "check that Redis runs and is reachable; until then a sweep finds the deadlines"

_BEGIN = """
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  redis.call('DEL', KEYS[1])
end
"""
_END = """
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
_ARM = (
    _BEGIN
    + """
for index = 2, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], ARGV[index + 1], ARGV[index])
end
"""
    + _END
    + "return 1\n"
)
_DUE = (
    _BEGIN
    + """
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(members) do
  redis.call('ZREM', KEYS[1], member)
end
"""
    + _END
    + "return members\n"
)


class RedisTimerWheel:
    """Deadlines under `prefix`; connects at the first call. Raises InvalidSetting."""

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        kept_ms: int = KEPT_MS,
        protocol: int = PROTOCOL,
        call_s_max: float = CALL_S_MAX,
    ) -> None:
        self._scripts = RedisScripts(
            url, _REMEDY, protocol=protocol, call_s_max=call_s_max, idle_max=IDLE_MAX
        )
        self._prefix = prefix
        self._kept_ms = kept_ms

    async def arm(self, bucket: int, deadlines_ms: Mapping[str, int]) -> None:
        """See `TransactionTimers.arm`. Each batch of a thousand has a call deadline of its own."""
        for part in _parts(deadlines_ms):
            pairs = ((member, str(deadlines_ms[member])) for member in part)
            await self._call(_ARM, bucket, *(word for pair in pairs for word in pair))

    async def due(self, bucket: int, now_ms: int, limit: int) -> Sequence[str]:
        """See `TransactionTimers.due`; at most `PART_COUNT_MAX` at a time."""
        count = min(limit, PART_COUNT_MAX)
        answer = await self._call(_DUE, bucket, str(now_ms), str(count))
        if not isinstance(answer, list):
            raise Unavailable("unexpected answer from Redis: not a list of members", remedy=_REMEDY)
        return [bytes(member).decode(errors="replace") for member in answer]

    async def close(self) -> None:
        """See `TransactionTimers.close`."""
        await self._scripts.close()

    def key(self, bucket: int) -> str:
        """The key of a bucket's deadlines."""
        return f"{self._prefix}:timers:{{{bucket}}}"

    async def _call(self, script: str, bucket: int, *arguments: str) -> object:
        return await self._scripts.call(script, [self.key(bucket)], str(self._kept_ms), *arguments)


def _parts(members: Collection[str]) -> Iterator[list[str]]:
    rest = iter(members)
    while part := list(islice(rest, PART_COUNT_MAX)):
        yield part
