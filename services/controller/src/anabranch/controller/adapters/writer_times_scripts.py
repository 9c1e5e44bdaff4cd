"""The scripts of `RedisWriterTimes`: what they do with marks, and with the index of streams.

A mark is a field of a stream's hash: ``<timestamp_ms>:<noted_ms>:<positions as JSON>``. The mark of
a removed writer has ``!`` before it. The index of a shard is a sorted set of streams, scored by a
number that grows with every change of any marks in the shard; a hash beside it holds the last
number, and since when numbers are counted.
"""

BEGIN = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark_ms = tonumber(ARGV[1])
local kinds = {'hash', 'zset', 'hash'}
for index, key in ipairs(KEYS) do
  if redis.call('TYPE', key).ok ~= kinds[index] then
    redis.call('DEL', key)
  end
end
local function number_of(value)
  return string.format('%.0f', value)
end
local function timestamp_of(value)
  local timestamp, noted = string.match(value or '', '^(%d+):(%d+):')
  timestamp, noted = tonumber(timestamp), tonumber(noted)
  if timestamp and noted <= now and noted > now - mark_ms then
    return timestamp
  end
  return nil
end
local function generation()
  local known = redis.call('HGET', KEYS[3], 'generation') or ''
  local number = redis.call('HGET', KEYS[3], 'number') or ''
  if not (string.match(known, '^%d+$') and string.match(number, '^%d+$')) then
    local highest = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    known, number = number_of(time[1] * 1000000 + time[2]), tonumber(highest[2] or '0')
    if not (number >= 0 and number < 2 ^ 52) then
      redis.call('DEL', KEYS[2])
      number = 0
    end
    redis.call('HSET', KEYS[3], 'generation', known, 'number', number_of(math.floor(number)))
  end
  redis.call('PEXPIRE', KEYS[3], mark_ms)
  return known
end
local function changed(stream)
  generation()
  local number = redis.call('HINCRBY', KEYS[3], 'number', 1)
  redis.call('ZADD', KEYS[2], number_of(number), stream)
  redis.call('PEXPIRE', KEYS[2], mark_ms)
end
"""
NOTE = (
    BEGIN
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
  return {'earlier', number_of(timestamp)}
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
local value = ARGV[4] .. ':' .. number_of(now) .. ':' .. ARGV[5]
redis.call('HSET', KEYS[1], writer, value)
redis.call('PEXPIRE', KEYS[1], mark_ms)
changed(ARGV[6])
return {'noted', '0'}
"""
)
"""KEYS: marks, index, numbers. ARGV: lifetime, writers, writer, time, positions, stream."""
REMOVE = (
    BEGIN
    + """
local value = redis.call('HGET', KEYS[1], ARGV[2])
if not timestamp_of(value) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[2], '!' .. value)
changed(ARGV[3])
return 1
"""
)
"""KEYS: marks, index, numbers. ARGV: lifetime, writer, stream."""
PAGE = (
    BEGIN
    + """
local after, count = ARGV[2], tonumber(ARGV[3])
local writers = {}
for _, writer in ipairs(redis.call('HKEYS', KEYS[1])) do
  if writer > after then
    table.insert(writers, writer)
  end
end
table.sort(writers)
local answer = {number_of(now), ''}
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
"""KEYS: marks. ARGV: lifetime, the writer after which it begins, how many."""
SCAN = (
    BEGIN
    + """
local found = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local answer = {generation(), found[1]}
for index = 1, #found[2], 2 do
  local value = found[2][index + 1]
  if timestamp_of(string.gsub(value, '^!', '')) then
    table.insert(answer, found[2][index])
    table.insert(answer, value)
  end
end
return answer
"""
)
"""KEYS: marks, index, numbers. ARGV: lifetime, cursor, about how many."""
DROP = (
    BEGIN
    + """
for index = 2, #ARGV, 2 do
  local value = redis.call('HGET', KEYS[1], ARGV[index])
  if value and string.sub(value, 1, #ARGV[index + 1]) == ARGV[index + 1] then
    redis.call('HDEL', KEYS[1], ARGV[index])
  end
end
return 1
"""
)
"""KEYS: marks. ARGV: lifetime, then pairs of a writer and the beginning of its value."""
NOTED = (
    BEGIN
    + """
local now_generation = generation()
local after = '(' .. ARGV[3]
if now_generation ~= ARGV[2] then
  after = '-inf'
end
local found = redis.call('ZRANGEBYSCORE', KEYS[2], after, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
table.insert(found, 1, now_generation)
return found
"""
)
"""KEYS: numbers, index, numbers. ARGV: lifetime, generation, last number, how many."""
FORGET = (
    BEGIN
    + """
if redis.call('ZSCORE', KEYS[2], ARGV[2]) == ARGV[3] then
  redis.call('ZREM', KEYS[2], ARGV[2])
end
return 1
"""
)
"""KEYS: numbers, index, numbers. ARGV: lifetime, stream, the number that it had."""
