"""Damaged and hostile bytes made of valid ones, from a seed.

Flips, cuts, splices, repeats, and numbers set to their extremes where a length or count may be; and
what MessagePack decoders dislike: lengths that promise gigabytes, deep nesting, text that is none.
"""

from collections.abc import Sequence

import msgspec

from kit.rng import Random

EXTREMES = tuple(
    value.to_bytes(size, order, signed=value < 0)
    for size in (1, 2, 4, 8)
    for value in (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), 2 ** (8 * size) - 2)
    for order in ("little", "big")
)
NASTY = (
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80",
    b"\xcb\x7f\xf8\0\0\0\0\0\0", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + bytes(7), b"\xc0", b"\xc1",
    b"\x91" * 3000, b"\x81\xa1x" * 1500, bytes(64), b"\xff" * 64,
)  # fmt: skip

ODD_VALUES: tuple[object, ...] = (
    0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**10, 1.5, float("nan"), -1.0,
    None, True, "", "x", "a/../b", "\0", "ﬀ", "x" * 3000, b"", b"x" * 15, b"x" * 70_000, [], {},
    [[1]], [0] * 5000,
)  # fmt: skip


def mutated(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """One to four damages to one of the seeds."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        _damage(rng, data, seeds)
    return bytes(data)


def _damage(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 2, 4, 8, 16, 64, 512)))
    match rng.randrange(8):
        case 0 | 1 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 2:
            del data[at:]
        case 3:
            del data[at:end]
        case 4:
            data[at:at] = data[at:end] * rng.choice((1, 2, 9))
        case 5:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            data[at:end] = other[start : start + rng.choice((8, 64, 4096))]
        case 6:
            extreme = rng.choice(EXTREMES)
            data[at : at + len(extreme)] = extreme
        case _:
            nasty = rng.choice(NASTY)
            data[at : at + rng.choice((0, len(nasty)))] = nasty


def reshaped(rng: Random, body: bytes) -> bytes:
    """A MessagePack body with one of its values replaced by an odd one."""
    root = [msgspec.msgpack.decode(body)]
    places: list[tuple[object, object]] = []
    _collect(root, places)
    holder, key = rng.choice(places)
    holder[key] = rng.choice(ODD_VALUES)  # type: ignore[index]
    return msgspec.msgpack.encode(root[0])


def _collect(holder: object, places: list[tuple[object, object]]) -> None:
    if isinstance(holder, list):
        entries = list(enumerate(holder))
    elif isinstance(holder, dict):
        entries = list(holder.items())
    else:
        return
    for key, value in entries:
        places.append((holder, key))
        _collect(value, places)
