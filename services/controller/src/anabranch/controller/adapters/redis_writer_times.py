"""`WriterTimes` in Redis: one hash per incarnation of a stream, a field per writer.

A field holds ``<timestamp_ms>:<noted_ms>:<positions as JSON>``; `noted_ms` is the server's clock.
The hash expires `mark_ms` after the last note, and an older mark counts as gone even before. The
scripts use commands of Redis 6.2 and trust no data: a key of another type is deleted, and a field
is no mark if it cannot be parsed, or if it lies in the future because the clock was set back.
"""

import json
from collections.abc import Sequence
from typing import NoReturn

from anabranch.common.adapters.redis_scripts import CALL_S_MAX, PROTOCOL, RedisScripts
from anabranch.common.contracts.writer_times import MARK_MS_MAX, WRITERS_MAX, WriterMark
from anabranch.common.errors import Unavailable
from anabranch.common.model.names import SegmentId, StreamRef
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.controller.domain.writer_times import (
    MarkPage,
    refuse_earlier,
    refuse_lower,
    refuse_more_writers,
)

IDLE_MAX = 16
_REMEDY = "check that Redis runs and is reachable; until then writers cannot note times"

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark_ms = tonumber(ARGV[1])
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  redis.call('DEL', KEYS[1])
end
local function timestamp_of(value)
  local timestamp, noted = string.match(value or '', '^(%d+):(%d+):')
  timestamp, noted = tonumber(timestamp), tonumber(noted)
  if timestamp and noted <= now and noted > now - mark_ms then
    return timestamp
  end
  return nil
end
"""
_NOTE = (
    _NOW
    + """
local function is_lower(one, other)  -- decimal numbers of up to 64 bits, which a double has not
  if string.sub(one, 1, 1) == '-' or string.sub(other, 1, 1) == '-' then
    return tonumber(one) < tonumber(other)
  end
  if #one ~= #other then
    return #one < #other
  end
  return one < other
end
local writers_max, writer = tonumber(ARGV[2]), ARGV[3]
local before = redis.call('HGET', KEYS[1], writer)
local timestamp = timestamp_of(before)
if timestamp and timestamp > tonumber(ARGV[4]) then
  return {'earlier', string.format('%.0f', timestamp)}
end
if timestamp then
  local noted = {}
  for segment, offset in string.gmatch(before, '%[(%d+),(%-?%d+)%]') do
    noted[segment] = offset
  end
  for segment, offset in string.gmatch(ARGV[5], '%[(%d+),(%-?%d+)%]') do
    if noted[segment] and is_lower(offset, noted[segment]) then
      return {'lower', segment, offset, noted[segment]}
    end
  end
end
if not before and redis.call('HLEN', KEYS[1]) >= writers_max then
  local found = redis.call('HGETALL', KEYS[1])
  for index = 1, #found, 2 do
    if not timestamp_of(found[index + 1]) then
      redis.call('HDEL', KEYS[1], found[index])
    end
  end
  if redis.call('HLEN', KEYS[1]) >= writers_max then
    return {'full', '0'}
  end
end
local value = ARGV[4] .. ':' .. string.format('%.0f', now) .. ':' .. ARGV[5]
redis.call('HSET', KEYS[1], writer, value)
redis.call('PEXPIRE', KEYS[1], mark_ms)
return {'noted', '0'}
"""
)
_REMOVE = _NOW + "return redis.call('HDEL', KEYS[1], ARGV[2])\n"
_PAGE = (
    _NOW
    + """
local after, count = ARGV[2], tonumber(ARGV[3])
local writers = {}
for _, writer in ipairs(redis.call('HKEYS', KEYS[1])) do
  if writer > after then
    table.insert(writers, writer)
  end
end
table.sort(writers)
local answer = {string.format('%.0f', now), ''}
for index = 1, math.min(count, #writers) do
  local value = redis.call('HGET', KEYS[1], writers[index])
  if timestamp_of(value) then
    table.insert(answer, writers[index])
    table.insert(answer, value)
  end
end
if #writers > count then
  answer[2] = writers[count]
end
return answer
"""
)


class RedisWriterTimes:
    """Marks under `prefix`; connects at the first call. Raises InvalidSetting."""

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        writers_max: int = WRITERS_MAX,
        mark_ms: int = MARK_MS_MAX,
        protocol: int = PROTOCOL,
        call_s_max: float = CALL_S_MAX,
    ) -> None:
        self._scripts = RedisScripts(
            url, _REMEDY, protocol=protocol, call_s_max=call_s_max, idle_max=IDLE_MAX
        )
        self._prefix = prefix
        self._writers_max = writers_max
        self._mark_ms = mark_ms

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """See `WriterTimes.note`."""
        answer = await self._call(
            _NOTE,
            self.key(stream, incarnation),
            str(self._writers_max),
            writer_id,
            str(timestamp_ms),
            _encoded(positions),
        )
        match answer:
            case [b"noted", _]:
                return
            case [b"earlier", bytes(noted)]:
                refuse_earlier(writer_id, timestamp_ms, int(noted))
            case [b"lower", bytes(segment), bytes(offset), bytes(noted)]:
                refuse_lower(writer_id, int(segment), int(offset), int(noted))
            case [b"full", _]:
                refuse_more_writers(stream, self._writers_max)
            case _:
                _refuse()

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """See `WriterTimes.remove`."""
        return await self._call(_REMOVE, self.key(stream, incarnation), writer_id) == 1

    async def page(self, stream: StreamRef, incarnation: int, after: str, count: int) -> MarkPage:
        """See `WriterTimes.page`."""
        answer = await self._call(_PAGE, self.key(stream, incarnation), after, str(count))
        try:
            assert isinstance(answer, list)
            now_ms, following, *rest = (word.decode() for word in answer)
            marks = [_mark(*pair) for pair in zip(rest[::2], rest[1::2], strict=True)]
            return MarkPage(int(now_ms), tuple(m for m in marks if m is not None), following)
        except (AssertionError, AttributeError, ValueError) as error:
            _refuse(error)

    async def close(self) -> None:
        """See `WriterTimes.close`."""
        await self._scripts.close()

    def key(self, stream: StreamRef, incarnation: int) -> str:
        """The key of a stream's marks."""
        return f"{self._prefix}:marks:{{{stream}/{incarnation}}}"

    async def _call(self, script: str, key: str, *arguments: str) -> object:
        return await self._scripts.call(script, [key], str(self._mark_ms), *arguments)


def _encoded(positions: StreamCut) -> str:
    return json.dumps([[at.segment_id, at.offset] for at in positions], separators=(",", ":"))


def _mark(writer_id: str, value: str) -> WriterMark | None:
    """The mark; None if the value has another format."""
    timestamp_ms, noted_ms, positions = value.split(":", 2)
    try:
        rows: Sequence[tuple[int, int]] = json.loads(positions)
        places = tuple(SegmentOffset(SegmentId(int(s)), int(at)) for s, at in rows)
    except (ValueError, TypeError):
        return None
    return WriterMark(
        writer_id=writer_id,
        timestamp_ms=int(timestamp_ms),
        positions=places,
        noted_ms=int(noted_ms),
    )


def _refuse(error: Exception | None = None) -> NoReturn:
    raise Unavailable("unexpected answer from Redis: not a time mark", remedy=_REMEDY) from error
