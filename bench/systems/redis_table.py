"""Redis as a key-value table: strings that begin with a version, and Lua for updates.

Redis has no versions of its own. A script is the fastest way to compare and set in one round trip,
on one of as many connections as there are callers.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self, cast

from redis.asyncio import Redis as RedisClient

from bench.systems.table import Entry, Held, Version

_VERSION_BYTES = 8
_SCAN_COUNT = 1_000
_REFUSED = -1
_REPLACE = """
local head = redis.call('GETRANGE', KEYS[1], 0, 7)
local version = head ~= '' and struct.unpack('>I8', head) or 0
if version ~= tonumber(ARGV[1]) then return -1 end
redis.call('SET', KEYS[1], struct.pack('>I8', version + 1) .. ARGV[2])
return version + 1
"""
_PUT_MANY = """
for i, key in ipairs(KEYS) do
  local head = redis.call('GETRANGE', key, 0, 7)
  local version = head ~= '' and struct.unpack('>I8', head) or 0
  redis.call('SET', key, struct.pack('>I8', version + 1) .. ARGV[i])
end
"""


class RedisTable:
    """All keys of the database. `open` loads the scripts."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._replace = ""
        self._put_many = ""

    async def open(self) -> Self:
        """Make the server know the scripts."""
        self._replace = await self._client.script_load(_REPLACE)
        self._put_many = await self._client.script_load(_PUT_MANY)
        return self

    async def create(self, key: bytes, value: bytes) -> Version:
        version = await self.replace(key, value, 0)
        assert version is not None, "the table is not fresh"
        return version

    async def replace(self, key: bytes, value: bytes, version: Version) -> Version | None:
        found = await self._client.evalsha(self._replace, 1, key, cast(int, version), value)
        return None if found == _REFUSED else found

    async def get(self, key: bytes) -> Held:
        found = cast(bytes, await self._client.get(key))
        return Held(found[_VERSION_BYTES:], int.from_bytes(found[:_VERSION_BYTES], "big"))

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        await self._client.evalsha(self._put_many, len(entries), *entries, *entries.values())

    async def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        found = cast(list[bytes], await self._client.mget(keys))
        return [each[_VERSION_BYTES:] for each in found]

    async def scan(self) -> int:
        count = 0
        async for batch in self.read_back():
            count += len(batch)
        return count

    async def read_back(self) -> AsyncIterator[Sequence[Entry]]:
        """By SCAN, which may find a key twice only if the number of keys shrinks meanwhile."""
        cursor = 0
        while True:
            cursor, found = await self._client.scan(cursor, count=_SCAN_COUNT)
            keys = cast(list[bytes], found)
            if keys:
                yield list(zip(keys, await self.get_many(keys), strict=True))
            if cursor == 0:
                return
