"""Looks at the groups of appends that reach the fake store, and at what a controller is asked."""

from collections.abc import Sequence

from anabranch.common.wire.messages import AppendTogether
from kit.client_bench import Bench


def groups(b: Bench) -> list[AppendTogether]:
    """The groups that arrived at the store, repeated ones included."""
    return [each for each in b.store.requests if isinstance(each, AppendTogether)]


def asked(b: Bench) -> list[str]:
    """The names of all questions to the controller from now on."""
    names: list[str] = []
    b.control.before_query = names.append
    return names


def keys_over(b: Bench, count: int) -> list[str]:
    """Keys that reach `count` different segments of the stream."""
    found: dict[str, str] = {}
    for number in range(10_000):
        key = f"key {number}"
        found.setdefault(segment_of(b, key), key)
        if len(found) == count:
            return list(found.values())
    raise AssertionError("the stream has fewer segments")


def segment_of(b: Bench, key: str) -> str:
    """The current segment of a key."""
    from anabranch.common.model.hashing import routing_position

    at = routing_position(key)
    (name,) = (
        each.name
        for each in b.stream.described(b.ref, b.stream.current)
        if each.key_start <= at < each.key_end
    )
    return name


def numbered(count: int, first: int = 0) -> Sequence[bytes]:
    """Events `first`, … as decimal digits."""
    return [b"%d" % number for number in range(first, first + count)]
