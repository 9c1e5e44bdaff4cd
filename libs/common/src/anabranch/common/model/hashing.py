"""The hashes that place things: keys → segments, segments → containers, aggregates → shards.

The three hashes are part of the stored data: a change would scatter existing data. Keys and
containers hash as Pravega's Java client and segment store do (murmur3-128 over UTF-16LE code units,
Guava's jump hash), so non-ASCII keys agree with Java writers. The segments of topics are the
exception: their numbers hold their containers (`topics.py`).
"""

import mmh3

from anabranch.common.model.names import TOGETHER_FIRST
from anabranch.common.model.topics import TOPIC_MARK, container_in

_ROUTING_SEED = 1741865571  # Java's "EventRouter".hashCode()
_CONTAINER_SEED = 1661405012  # Java's "SegmentToContainerMapper".hashCode()
_JUMP_MULTIPLIER = 2862933555777941757
_MASK64 = 2**64 - 1
_NUMBER_LENGTH_MAX = 10
"""The digits of the highest segment number."""

SHARD_COUNT = 16


def routing_position(key: str) -> float:
    """The key's place in the key space, in [0, 1): 52 bits of murmur3-128."""
    low, _ = mmh3.hash64(key.encode("utf-16-le"), _ROUTING_SEED, x64arch=True, signed=False)
    return (low >> 12) / float(1 << 52)


def container_of(segment_name: str, container_count: int) -> int:
    """The container that owns the segment: 0 … container_count - 1, except for a topic's segment.

    The segments of a stream that keeps them together all hash as the stream's name (ADR 18).

    Transaction and transient suffixes and the epoch are removed first, so segments that will be
    merged into a segment live in the same container as it. The number of a topic's segment holds
    its container, whatever `container_count` is.
    """
    assert container_count > 0
    base = segment_name.partition("#transaction")[0].partition("#transient")[0]
    base = base.partition(".#epoch.")[0]
    stream, _, number = base.rpartition("/")
    if number.isascii() and number.isdecimal() and len(number) <= _NUMBER_LENGTH_MAX:
        if TOPIC_MARK in base:
            return container_in(int(number))
        if int(number) >= TOGETHER_FIRST:
            base = stream
    low, _ = mmh3.hash64(base.encode("utf-16-le"), _CONTAINER_SEED, x64arch=True, signed=False)
    return _jump_hash(low, container_count)


def _jump_hash(state: int, bucket_count: int) -> int:
    """Guava's consistentHash: an LCG-driven jump consistent hash."""
    candidate = 0
    while True:
        state = (state * _JUMP_MULTIPLIER + 1) & _MASK64
        draw = ((state >> 33) + 1) / float(1 << 31)
        following = int((candidate + 1) / draw)
        if not 0 <= following < bucket_count:
            return candidate
        candidate = following


def shard_of(name: str) -> int:
    """The event-store shard (and bucket) of an aggregate named `scope` or `scope/stream`."""
    return mmh3.hash(name, 0, signed=False) % SHARD_COUNT


def bucket_of(subject: str, shard: int, bucket_count: int) -> int:
    """The bucket of an event subject in that shard: the unit in which controllers share work.

    A shard has one bucket or several, the same number each: bucket `b` lies in shard `b %
    SHARD_COUNT`. No stored data depends on it, but all controllers must agree.
    """
    buckets_per_shard = bucket_count // SHARD_COUNT
    if buckets_per_shard == 1:
        return shard
    return shard + SHARD_COUNT * (mmh3.hash(subject, 0, signed=False) % buckets_per_shard)


def rendezvous_weight(candidate: str, what: str) -> int:
    """The weight of `candidate` for `what`; the candidate with the highest weight is the owner.

    No stored data depends on it.
    """
    return mmh3.hash(f"{what}/{candidate}", 0, signed=False)
