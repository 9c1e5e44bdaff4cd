"""The `ObjectStore` on a Redis server: a hash of values, with a number that counts the changes.

    <prefix>:{<bucket>}:objects   hash    key → "<revision> <stored ms> <value>"
    <prefix>:{<bucket>}:changes   stream  one entry per change, its id is <revision>-0: the key
    <prefix>:{<bucket>}:meta      hash    id (drawn at the first write), revision (the newest)

One script performs all writes of a call, and compares each object's revision first. So revisions
grow without a gap over the whole bucket, and a deleted key leaves nothing behind. The server's own
clock dates objects. The scripts use commands of Redis 6.2.

A watch lists all objects and then follows the stream of changes. It has lost its place if the
connection breaks, if the next entry is not the next revision (the stream keeps only the newest), or
if the bucket has another id or a lower revision (the server lost its data). Then it reports every
object that is gone as deleted, and lists again.

A server that is not durable, or that evicts keys, may forget acknowledged objects; `durability`
reads its settings. Only one server holds the objects: a replica may lack acknowledged writes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Connection
from redis.exceptions import RedisError, ResponseError

from anabranch.common.adapters.redis_scripts import PROTOCOL, RedisScripts
from anabranch.common.errors import (
    ObjectExists,
    OutcomeUnknown,
    RevisionConflict,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject, check_writes
from anabranch.common.model.redis_server import RedisDurability
from anabranch.common.runtime.clock import Clock

PREFIX = "anabranch"
CALL_S_MAX = 5.0
IDLE_MAX = 4
WRITE_COUNT_MAX = 500
"""Writes in one call of the server, which serves no other client meanwhile."""
CHANGE_COUNT_MAX = 1000
"""Changes in one read of a watch."""
CHANGES_KEPT = 20_000
"""The changes that a watch may lag behind; beyond, it lists again."""
BLOCK_S = 1.0
"""How long a watch waits on the server for a change before it asks again."""
RETRY_S = 0.5
_REMEDY = "check that the Redis server of the cluster's objects runs and is reachable"

_WRITE = """
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local revision = tonumber(redis.call('HGET', KEYS[3], 'revision') or '0')
if redis.call('HEXISTS', KEYS[3], 'id') == 0 then
  redis.call('HSET', KEYS[3], 'id', time[1] .. '-' .. time[2])
end
local answer = {}
for index = 2, #ARGV, 3 do
  local key, value = ARGV[index], ARGV[index + 2]
  local raw = redis.call('HGET', KEYS[1], key)
  local actual = raw and tonumber(string.match(raw, '^(%d+) ')) or 0
  if actual ~= tonumber(ARGV[index + 1]) then
    answer[#answer + 1] = {0, actual}
  else
    revision = revision + 1
    local numeral = string.format('%.0f', revision)
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], numeral .. '-0', 'key', key)
    if value == '' then
      redis.call('HDEL', KEYS[1], key)
    else
      redis.call('HSET', KEYS[1], key, numeral .. ' ' .. now .. ' ' .. value)
    end
    redis.call('HSET', KEYS[3], 'revision', numeral)
    answer[#answer + 1] = {revision, actual}
  end
end
return answer
"""
_GET = "return redis.call('HGET', KEYS[1], ARGV[1])\n"
_META = """
local meta = redis.call('HMGET', KEYS[3], 'id', 'revision')
local id, revision = meta[1] or '', tonumber(meta[2] or '0')
"""
_LIST = _META + "return {id, revision, redis.call('HGETALL', KEYS[1])}\n"
_CHANGES = (
    _META
    + """
local since = tonumber(ARGV[2])
if (ARGV[1] ~= '' and id ~= ARGV[1]) or revision < since then
  return {}
end
local from = string.format('%.0f-0', since + 1)
local found = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', ARGV[3])
if #found == 0 and revision > since then
  return {}
end
local answer, at = {}, {}
for _, entry in ipairs(found) do
  since = since + 1
  if entry[1] ~= string.format('%.0f-0', since) then
    return {}
  end
  local key = entry[2][2]
  if not at[key] then
    answer[#answer + 1] = {key, '', 0}
    at[key] = answer[#answer]
  end
  at[key][3] = since
end
for _, one in ipairs(answer) do
  one[2] = redis.call('HGET', KEYS[1], one[1]) or ''
end
return {since, answer, id}
"""
)


class RedisObjects:
    """All buckets of one cluster on one server. Raises InvalidSetting if `url` is not its URL."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        prefix: str = PREFIX,
        *,
        protocol: int = PROTOCOL,
        call_s_max: float = CALL_S_MAX,
    ) -> None:
        self._scripts = RedisScripts(
            url, _REMEDY, protocol=protocol, call_s_max=call_s_max, idle_max=IDLE_MAX
        )
        self._clock = clock
        self._prefix = prefix

    def bucket(self, name: str) -> "RedisObjectStore":
        """The bucket of this name; it exists once something is written to it."""
        return RedisObjectStore(self._scripts, self._clock, f"{self._prefix}:{{{name}}}:")

    async def durability(self) -> RedisDurability:
        """The settings of the server that the durability depends on. Raises Unavailable."""
        told = await self._told("INFO", "server")
        role = await self._told("INFO", "replication")
        return RedisDurability(
            version=told.get("redis_version", ""),
            role=role.get("role", ""),
            appendonly=await self._setting("appendonly"),
            appendfsync=await self._setting("appendfsync"),
            no_appendfsync_on_rewrite=await self._setting("no-appendfsync-on-rewrite"),
            maxmemory_policy=await self._setting("maxmemory-policy"),
        )

    async def close(self) -> None:
        """Drop the connections that are not in use. Repeatable."""
        await self._scripts.close()

    async def _told(self, *command: str) -> dict[str, str]:
        try:
            answer = await self._scripts.send(*command)
        except OutcomeUnknown as error:
            raise Unavailable(error.message, remedy=_REMEDY) from error
        lines = _text(answer).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def _setting(self, name: str) -> str:
        try:
            answer = await self._scripts.send("CONFIG", "GET", name)
        except OutcomeUnknown as error:
            raise Unavailable(error.message, remedy=_REMEDY) from error
        except Unavailable as error:
            if isinstance(error.__cause__, ResponseError):
                return ""  # The server permits no CONFIG.
            raise
        found = list(answer.items()) if isinstance(answer, dict) else None
        if found is None:
            words = answer if isinstance(answer, list) else []
            found = list(zip(words[::2], words[1::2], strict=False))
        return next((_text(value) for key, value in found if _text(key) == name), "")


@dataclass(frozen=True, slots=True)
class _Listing:
    """All objects of a bucket at one revision; `bucket_id` is "" before the first write."""

    bucket_id: str
    revision: int
    objects: Sequence[StoredObject]


class RedisObjectStore:
    """An `ObjectStore`; `RedisObjects.bucket` makes it.

    Every call may raise Unavailable, and a write also OutcomeUnknown: read the key before you
    decide again.
    """

    def __init__(self, scripts: RedisScripts, clock: Clock, prefix: str) -> None:
        self._scripts = scripts
        self._clock = clock
        self._keys = tuple(prefix + name for name in ("objects", "changes", "meta"))

    async def get(self, key: str) -> StoredObject | None:
        """See `ObjectStore.get`."""
        raw = await self._scripts.call(_GET, self._keys, key)
        return None if raw is None else _stored(key, raw)

    async def create(self, key: str, value: bytes) -> int:
        """See `ObjectStore.create`."""
        assert value
        revision, actual = await self._write(key, value, 0)
        if not revision:
            raise ObjectExists("the key has a value", key=key, revision=actual)
        return revision

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """See `ObjectStore.update`."""
        assert value
        return await self._replace(key, value, revision)

    async def delete(self, key: str, revision: int) -> None:
        """See `ObjectStore.delete`."""
        await self._replace(key, b"", revision)

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        """See `ObjectStore.write_all`."""
        check_writes(writes)
        revisions: list[int | None] = []
        for at in range(0, len(writes), WRITE_COUNT_MAX):
            part = await self._write_all(writes[at : at + WRITE_COUNT_MAX])
            revisions += [revision or None for revision, _ in part]
        return revisions

    async def list(self) -> Sequence[StoredObject]:
        """See `ObjectStore.list`."""
        return (await self._listing()).objects

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        """See `ObjectStore.watch`. Raises Unavailable if the first list fails."""
        listing = await self._listing()
        known: dict[str, int] = {}
        while True:
            present = {one.key for one in listing.objects}
            for key in [key for key in known if key not in present]:
                del known[key]
                yield StoredObject(key, b"", listing.revision)
            for one in listing.objects:
                known[one.key] = one.revision
                yield one
            yield None
            async for changed in self._follow(listing):
                if known.get(changed.key, 0) >= changed.revision:
                    continue
                if changed.value:
                    known[changed.key] = changed.revision
                else:
                    known.pop(changed.key, None)
                yield changed
            listing = await self._listed_again()

    async def _follow(self, listing: _Listing) -> AsyncIterator[StoredObject]:
        """The changes after the list, until the place is lost."""
        connection = self._scripts.fresh()
        reached, bucket_id = listing.revision, listing.bucket_id
        try:
            while True:
                await self._wait_for_change(connection, reached)
                answer = await self._scripts.call(
                    _CHANGES, self._keys, bucket_id, str(reached), str(CHANGE_COUNT_MAX)
                )
                if not isinstance(answer, list) or not answer:
                    return
                reached, changes, bucket_id = int(answer[0]), answer[1], _text(answer[2])
                for key, raw, revision in changes:
                    name = _text(key)
                    yield _stored(name, raw) if raw else StoredObject(name, b"", int(revision))
        except (RedisError, OSError, TimeoutError, Unavailable):
            return
        finally:
            await connection.disconnect(nowait=True)

    async def _wait_for_change(self, connection: Connection, reached: int) -> None:
        """Wait until the bucket has a newer change, or for `BLOCK_S`. Raises RedisError, OSError,
        TimeoutError."""
        async with asyncio.timeout(BLOCK_S + CALL_S_MAX):
            await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_command(
                "XREAD", "COUNT", 1, "BLOCK", int(BLOCK_S * 1000),
                "STREAMS", self._keys[1], f"{reached}-0",
            )  # fmt: skip
            await connection.read_response()

    async def _listed_again(self) -> _Listing:
        """The list as soon as the server answers."""
        while True:
            try:
                return await self._listing()
            except Unavailable:
                await self._clock.sleep(RETRY_S)

    async def _listing(self) -> _Listing:
        answer: Any = await self._scripts.call(_LIST, self._keys)
        try:
            bucket_id, revision, words = answer
            found = [_stored(_text(k), raw) for k, raw in zip(words[::2], words[1::2], strict=True)]
        except (TypeError, ValueError) as error:
            raise _unexpected() from error
        found.sort(key=lambda one: one.key)
        return _Listing(_text(bucket_id), int(revision), found)

    async def _replace(self, key: str, value: bytes, revision: int) -> int:
        new, actual = await self._write(key, value, revision)
        if not new:
            raise RevisionConflict(
                "the object has changed", key=key, expected=revision, actual=actual
            )
        return new

    async def _write(self, key: str, value: bytes, revision: int) -> tuple[int, int]:
        [one] = await self._write_all([ObjectWrite(key, value, revision)])
        return one

    async def _write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[tuple[int, int]]:
        """For each write, its new revision (0: refused) and the one that it met."""
        words = [word for one in writes for word in (one.key, str(one.revision), one.value)]
        answer = await self._scripts.run(_WRITE, self._keys, str(CHANGES_KEPT), *words)
        try:
            assert isinstance(answer, list)
            found = [(int(revision), int(actual)) for revision, actual in answer]
            assert len(found) == len(writes)
        except (AssertionError, TypeError, ValueError) as error:
            raise OutcomeUnknown(
                "unexpected answer from Redis: not revisions", remedy=_REMEDY
            ) from error
        return found


def _stored(key: str, raw: object) -> StoredObject:
    """The object in a field of the hash. Raises Unavailable: another program wrote it."""
    try:
        assert isinstance(raw, bytes)
        revision, stored_ms, value = raw.split(b" ", 2)
        return StoredObject(key, value, int(revision), int(stored_ms))
    except (AssertionError, ValueError) as error:
        raise _unexpected() from error


def _unexpected() -> Unavailable:
    return Unavailable("unexpected answer from Redis: not objects", remedy=_REMEDY)


def _text(word: object) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
