"""A keyed batch, divided among its segments, against a division event by event."""

from array import array
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES, Batch
from anabranch.client.writing.columns import Columns, Routed, columns_of, divide
from anabranch.client.writing.lanes import KeyRoutes, Lanes
from anabranch.client.writing.outbox import Outbox
from anabranch.client.writing.pacing import BlockSizing, InFlight
from anabranch.client.writing.placing import Placing
from anabranch.common.errors import InvalidRequest
from kit.rng import seeded

BLOCK_SIZE = 100
OUTBOXES = 4
Row = tuple[bytes, bytes | None, int | None]

events_with_keys = st.lists(
    st.tuples(
        st.binary(max_size=40),
        st.integers(0, OUTBOXES - 1),
        st.none() | st.binary(max_size=8),
        st.integers(-(1 << 63), (1 << 63) - 1),
    ),
    min_size=1,
    max_size=60,
)


def an_outbox() -> Outbox:
    sizing = BlockSizing(BLOCK_SIZE, 4 * BLOCK_SIZE)
    return Outbox(bytes(16), 8, in_flight_bytes=InFlight(1 << 20), sizing=sizing)


def cost(row: Row) -> int:
    event, key, _ = row
    return len(event) + len(key or b"") + EVENT_OVERHEAD_BYTES


def rows(columns: Columns | Batch) -> list[Row]:
    """The events, padded with None as `Batch` says."""
    count = len(columns.events)
    keys, stamps = list(columns.keys or ()), list(columns.timestamps_ms or ())
    keys += [None] * (count - len(keys))
    padded = [*stamps, *[None] * (count - len(stamps))]
    return list(zip(columns.events, keys, padded, strict=True))


def in_blocks(given: list[Row]) -> list[list[Row]]:
    """The rows cut behind each one that fills its block."""
    blocks: list[list[Row]] = [[]]
    for row in given:
        if sum(map(cost, blocks[-1])) >= BLOCK_SIZE:
            blocks.append([])
        blocks[-1].append(row)
    return blocks


@given(events_with_keys, st.booleans())
def test_each_outbox_gets_its_events_in_order_at_their_cost(
    drawn: list[tuple[bytes, int, bytes | None, int]], has_times: bool
) -> None:
    outboxes = [an_outbox() for _ in range(OUTBOXES)]
    expected: dict[Outbox, list[Row]] = {}
    for event, at, key, stamp in drawn:
        row = (event, key, stamp if has_times else None)
        expected.setdefault(outboxes[at], []).append(row)
    routed: Routed = [(outboxes[at], key) for _, at, key, _ in drawn]
    stamps = array("q", [stamp for *_, stamp in drawn]) if has_times else None

    shares = divide([event for event, *_ in drawn], routed, stamps, outboxes * 2)

    assert {outbox: rows(share) for outbox, share in shares} == expected
    assert len(shares) == len(expected)
    for _, share in shares:
        assert share.costs() == list(map(cost, rows(share)))
        assert share.cost == sum(share.costs())


def test_a_division_that_is_interrupted_leaves_nothing_to_the_next_one() -> None:
    outbox = an_outbox()
    routed: Routed = [(outbox, b"a"), (outbox, b"b")]

    with pytest.raises(ValueError, match="shorter"):
        divide([b"1"], routed, None, [outbox])
    ((_, share),) = divide([b"1", b"2"], routed, None, [outbox])

    assert rows(share) == [(b"1", b"a", None), (b"2", b"b", None)]


@given(events_with_keys, st.booleans(), st.booleans())
def test_a_share_is_added_whole_and_cut_into_blocks_behind_the_event_that_fills_one(
    drawn: list[tuple[bytes, int, bytes | None, int]], has_keys: bool, has_times: bool
) -> None:
    outbox, placing = an_outbox(), Placing(Lanes(no_appender), seeded(1), None)
    keys = [key for _, _, key, _ in drawn] if has_keys else None
    stamps = array("q", [stamp for *_, stamp in drawn]) if has_times else None
    share = columns_of([event for event, *_ in drawn], keys, stamps)

    assert placing.add(share, outbox) == (outbox,)

    assert outbox.awake
    assert outbox.last_added == len(drawn)
    batches = [batch for batch in outbox.take_all() if isinstance(batch, Batch)]
    assert list(map(rows, batches)) == in_blocks(rows(share))
    assert [batch.cost for batch in batches] == [sum(map(cost, rows(b))) for b in batches]


def no_appender(segment: str) -> NoReturn:
    raise AssertionError(segment)


def test_the_route_of_a_key_is_asked_for_once_until_it_is_among_the_oldest_of_too_many() -> None:
    outbox, asked = an_outbox(), list[str]()

    def route(key: str) -> tuple[Outbox, bytes]:
        asked.append(key)
        return outbox, key.encode()

    routes = KeyRoutes(route, limit=16)
    keys = [f"key {number}" for number in range(16)]
    for key in keys * 2:
        assert routes[key] == (outbox, key.encode())
    assert asked == keys
    assert routes["another"] == (outbox, b"another")
    assert len(routes) == 16 - 2 + 1
    del asked[:]
    for key in keys[2:]:
        assert routes[key] == (outbox, key.encode())
    assert not asked
    assert routes[keys[0]] == (outbox, keys[0].encode())
    assert asked == [keys[0]]
    for number in range(1000):
        routes[f"one of many {number}"]
        assert len(routes) <= 16


def test_a_refused_key_is_refused_again() -> None:
    def refuse(key: str) -> tuple[Outbox, bytes]:
        raise InvalidRequest("refused", key=key)

    routes = KeyRoutes(refuse)
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            routes["key"]
    assert not routes
