"""What every store answers about a table segment: look-ups, scans, the log, times to live."""

import pytest

from anabranch.common.errors import InvalidRequest, SegmentSealed
from anabranch.common.wire.messages import GetEntries, TableRead
from anabranch.common.wire.table import GET_KEYS_MAX
from anabranch.common.wire.table_columns import (
    ABSENT,
    ANY,
    NO_ROW,
    Refusal,
    decode_rows,
    encode_keys,
)
from kit.served_table import SEGMENT, START_MS, ServedTable

# --- reads --------------------------------------------------------------------------------


async def test_a_look_up_returns_the_rows_in_the_order_of_the_keys(table: ServedTable) -> None:
    await table.update([(b"a", b"1"), (b"b", b"2")])
    rows = await table.get(b"b", b"none", b"a", b"b")
    assert [row.value for row in rows] == [b"2", b"", b"1", b"2"]
    assert rows[1] == NO_ROW
    assert {row.key for row in rows} == {b""}
    assert await table.get() == []


async def test_a_look_up_of_more_than_fits_leaves_out_the_last_rows(table: ServedTable) -> None:
    for number in range(4):
        await table.put(b"%d" % number, bytes(1000))
    for size, count in ((1, 1), (2500, 2), (4000, 4)):
        request = GetEntries(segment=SEGMENT, size_max=size)
        keys = encode_keys([b"%d" % number for number in range(4)])
        reply, data = await table.ask(request, TableRead, keys)
        assert 1 <= len(decode_rows(data)) <= max(count, 1)
        assert reply.more == (len(decode_rows(data)) < 4)


async def test_a_look_up_of_too_many_keys_is_refused(table: ServedTable) -> None:
    await table.get(*[b"x"] * GET_KEYS_MAX)
    with pytest.raises(InvalidRequest):
        await table.get(*[b"x"] * (GET_KEYS_MAX + 1))


KEYS = [b"\x00", b"\x00\xff", b"a", b"aa", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]


async def test_a_scan_is_in_the_order_of_unsigned_bytes(table: ServedTable) -> None:
    await table.update([(key, b"x") for key in reversed(KEYS)])
    assert list(await table.everything()) == sorted(KEYS)


@pytest.mark.parametrize(
    ("start", "end"), [(b"a", b"b"), (b"", b"a"), (b"b", b""), (b"a", b"a"), (b"a\x00", b"ab")]
)
async def test_a_scan_returns_the_keys_from_its_start_up_to_its_end(
    table: ServedTable, start: bytes, end: bytes
) -> None:
    await table.update([(key, b"x") for key in KEYS])
    rows, reply = await table.scan(start=start, end=end)
    expected = [key for key in sorted(KEYS) if start <= key and (not end or key < end)]
    assert [row.key for row in rows] == expected
    assert not reply.more


async def test_pages_of_a_scan_continue_after_their_last_keys(table: ServedTable) -> None:
    await table.update([(key, b"x" * 100) for key in KEYS])
    for bounds in ({"count_max": 3}, {"size_max": 250}, {"size_max": 1}):
        found: list[bytes] = []
        start, pages = b"", 0
        while True:
            rows, reply = await table.scan(start=start, **bounds)
            found += [row.key for row in rows]
            if not reply.more:
                break
            start, pages = rows[-1].key + b"\0", pages + 1
        assert found == sorted(KEYS)
        assert pages >= 3


async def test_a_scan_without_values_has_the_same_keys_and_versions(table: ServedTable) -> None:
    await table.update([(key, b"value") for key in KEYS])
    rows, _ = await table.scan()
    bare, _ = await table.scan(values=False)
    assert [(row.key, row.version, row.value) for row in bare] == [
        (row.key, row.version, b"") for row in rows
    ]


async def test_reads_say_up_to_which_length_they_are(table: ServedTable) -> None:
    await table.put(b"a", b"1")
    described = await table.describe()
    _, reply = await table.scan()
    assert (reply.length, reply.segment_number) == (described.length, described.segment_number)


# --- the log ------------------------------------------------------------------------------


async def test_the_segment_holds_the_performed_entries_and_the_refusals(
    table: ServedTable,
) -> None:
    first, _ = await table.update([(b"a", b"1"), (b"b", None)])
    table.store.pass_time(5)
    second, _ = await table.update([(b"c", b"3"), (b"a", b"2")], [ANY, ABSENT], [1, 1])
    blocks = await table.blocks()
    assert [list(block.keys) for block in blocks] == [[b"a", b"b"], [b"c"]]
    assert [list(block.values) for block in blocks] == [[b"1", None], [b"3"]]
    assert [block.versions[0] for block in blocks] == [first.version, second.version]
    assert blocks[1].refusals == (Refusal(1, 1, first.version),)
    assert blocks[1].time_ms >= blocks[0].time_ms + 5 >= START_MS
    assert [block.request_number for block in blocks] == [1, 2]


async def test_a_sealed_segment_takes_no_update_but_repeats_answers_and_is_read(
    table: ServedTable,
) -> None:
    told = await table.update([(b"a", b"1")], number=1)
    await table.store.seal(SEGMENT)
    with pytest.raises(SegmentSealed):
        await table.update([(b"a", b"2")], number=2)
    assert await table.update([(b"a", b"1")], number=1) == told
    assert (await table.get(b"a"))[0].value == b"1"
    assert (await table.describe()).sealed


# --- time to live -------------------------------------------------------------------------


async def test_an_entry_with_a_time_to_live_is_gone_when_it_has_passed(
    table: ServedTable,
) -> None:
    await table.put(b"stays", b"x")
    await table.put(b"goes", b"x", ttl_ms=1000)
    (row,) = await table.get(b"goes")
    assert row.expires_ms >= START_MS + 1000
    table.store.pass_time(999)
    assert list(await table.everything()) == [b"goes", b"stays"]
    table.store.pass_time(2)
    assert list(await table.everything()) == [b"stays"]
    assert await table.get(b"goes") == [NO_ROW]


async def test_a_put_renews_the_time_to_live_or_ends_it(table: ServedTable) -> None:
    for key in (b"renewed", b"endless"):
        await table.put(key, b"x", ttl_ms=1000)
    table.store.pass_time(800)
    await table.put(b"renewed", b"x", ttl_ms=1000)
    await table.put(b"endless", b"x")
    table.store.pass_time(800)
    assert list(await table.everything()) == [b"endless", b"renewed"]
    table.store.pass_time(800)
    assert list(await table.everything()) == [b"endless"]


async def test_an_expired_entry_counts_as_absent_for_conditions(table: ServedTable) -> None:
    told, _ = await table.update([(b"a", b"1")], ttl_ms=10)
    table.store.pass_time(11)
    _, refusals = await table.update([(b"a", b"2")], [told.version], life=told.segment_number)
    assert refusals == [Refusal(0, 0, ABSENT)]
    _, refusals = await table.update([(b"a", b"2")], [ABSENT])
    assert refusals == []
