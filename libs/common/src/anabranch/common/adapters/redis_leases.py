"""`Leases` in Redis: one hash per number, decided by scripts under the server's own clock.

A hash holds {owner, expires (Unix ms of the server), token}. All keys begin with one prefix and
share a hash tag, so that one script may access them all, also in a cluster. The scripts use
commands of Redis 6.2 and check all stored values. A key of another type, fields that are not
numbers, and a lease that would last longer than the lease time (because the server's clock was set
back, or a foreign program wrote it) all count as ended, and the next `take` overwrites them.
"""

from collections.abc import Collection, Iterator, Mapping

from anabranch.common.adapters.redis_scripts import CALL_S_MAX, PROTOCOL, RedisScripts
from anabranch.common.errors import Unavailable
from anabranch.common.leases.ports import Lease

_REMEDY = "check that Redis runs and is reachable; until then controllers share buckets without it"

_HELD = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease_ms = tonumber(ARGV[1])
local function held(key)
  local found = redis.pcall('HMGET', key, 'owner', 'expires', 'token')
  if found.err then
    return nil, 0, true
  end
  local expires, token = tonumber(found[2]), tonumber(found[3])
  if not (token and token >= 0 and token < 2^53) then
    token = 0
  end
  if found[1] and expires and expires > now and expires <= now + lease_ms then
    return found[1], token, false
  end
  return nil, token, false, found[1]
end
"""
_READ = (
    _HELD
    + """
local answer = {}
for index, key in ipairs(KEYS) do
  local owner, token = held(key)
  answer[index] = {owner or '', string.format('%.0f', token)}
end
return answer
"""
)
_TAKE = (
    _HELD
    + """
local answer = {}
for index, key in ipairs(KEYS) do
  local owner, token, is_damaged, last = held(key)
  if is_damaged then
    redis.call('DEL', key)
  end
  if not owner then
    if last ~= ARGV[2] then
      token = token + 1
    end
    owner = ARGV[2]
  end
  if owner == ARGV[2] then
    local numeral = string.format('%.0f', token)
    redis.call('HSET', key, 'owner', owner, 'token', numeral,
      'expires', string.format('%.0f', now + lease_ms))
    answer[index] = {owner, numeral}
  else
    answer[index] = {'', '0'}
  end
end
return answer
"""
)
_RELEASE = (
    _HELD
    + """
for _, key in ipairs(KEYS) do
  if held(key) == ARGV[2] then
    redis.call('HSET', key, 'expires', '0')
  end
end
return {}
"""
)


class RedisLeases:
    """Leases on the numbers 0 … `count` - 1 under `prefix`. The first call connects.

    `lease_s`: how long a lease lasts, the same for all owners that share the prefix. Raises
    InvalidSetting if the URL does not name a Redis server.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        count: int,
        lease_s: float,
        *,
        protocol: int = PROTOCOL,
        call_s_max: float = CALL_S_MAX,
    ) -> None:
        self._scripts = RedisScripts(url, _REMEDY, protocol=protocol, call_s_max=call_s_max)
        self._prefix = prefix
        self._numbers = range(count)
        self._lease_ms = int(lease_s * 1000)

    async def read(self) -> Mapping[int, Lease]:
        """See `Leases.read`."""
        return dict(_leases(self._numbers, await self._call(_READ, self._numbers)))

    async def take(self, numbers: Collection[int], owner: str) -> Mapping[int, Lease]:
        """See `Leases.take`."""
        return dict(_leases(numbers, await self._call(_TAKE, numbers, owner))) if numbers else {}

    async def release(self, numbers: Collection[int], owner: str) -> None:
        """See `Leases.release`."""
        if numbers:
            await self._call(_RELEASE, numbers, owner)

    async def close(self) -> None:
        """See `Leases.close`."""
        await self._scripts.close()

    def key(self, number: int) -> str:
        """The key of a lease."""
        return f"{self._prefix}:{{leases}}:{number:02d}"

    async def _call(self, script: str, numbers: Collection[int], *arguments: str) -> object:
        """Run the script and return its answer. Raises Unavailable."""
        keys = [self.key(number) for number in numbers]
        return await self._scripts.call(script, keys, str(self._lease_ms), *arguments)


def _leases(numbers: Collection[int], answer: object) -> Iterator[tuple[int, Lease]]:
    """The leases in an answer of one {owner, token} per number. Raises Unavailable."""
    try:
        assert isinstance(answer, list)
        for number, (owner, token) in zip(numbers, answer, strict=True):
            if owner:
                yield number, Lease(owner.decode(errors="replace"), int(token))
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise Unavailable("unexpected answer from Redis: not a lease", remedy=_REMEDY) from error
