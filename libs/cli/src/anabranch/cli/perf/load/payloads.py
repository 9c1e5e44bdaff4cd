"""The payloads of a load: the same events in every run, drawn before the clock runs. Pure.

The first half of each payload is random and the rest is not, so that compression gains little. The
first bytes may be overwritten with a number, by which a reader recognizes the event.
"""

from collections.abc import Iterator

from anabranch.common.runtime.ids import SeededIds

POOL_COUNT = 1_000
POOL_SIZE_BYTES_MAX = 16 * 1024 * 1024
BATCH_SIZE_BYTES_MAX = 1024 * 1024
INDEX_SIZE_BYTES = 8
_SEED = 20_261_121
_FILLER = b"anabranch bench "


def pool_of(size_bytes: int, count: int = POOL_COUNT) -> tuple[bytes, ...]:
    """`count` payloads of this size."""
    source = SeededIds(_SEED + size_bytes)
    filler = _FILLER * (size_bytes // len(_FILLER) + 1)
    random_bytes = size_bytes // 2
    events = []
    for _ in range(count):
        drawn = b"".join(source.new_bytes() for _ in range(random_bytes // 16 + 1))
        events.append(drawn[:random_bytes] + filler[: size_bytes - random_bytes])
    return tuple(events)


def pool_count(size_bytes: int) -> int:
    """The number of payloads of this size that a pool of bounded memory holds."""
    return max(1, min(POOL_COUNT, POOL_SIZE_BYTES_MAX // max(1, size_bytes)))


def batch_count(size_bytes: int) -> int:
    """The number of events of this size that are written by one call at most."""
    return max(1, min(POOL_COUNT, BATCH_SIZE_BYTES_MAX // max(1, size_bytes)))


def numbered(payload: bytes, index: int) -> bytes:
    """The payload with its number in its first bytes; it has at least `INDEX_SIZE_BYTES`."""
    return index.to_bytes(INDEX_SIZE_BYTES, "little") + payload[INDEX_SIZE_BYTES:]


def index_of(payload: bytes) -> int:
    """The number of a numbered payload."""
    return int.from_bytes(payload[:INDEX_SIZE_BYTES], "little")


def all_numbered(pool: tuple[bytes, ...], first: int = 0) -> Iterator[bytes]:
    """The pool again and again, each event with its number from `first` on."""
    index = first
    while True:
        for payload in pool:
            yield numbered(payload, index)
            index += 1
