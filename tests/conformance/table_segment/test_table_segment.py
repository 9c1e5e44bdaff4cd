"""What every store does with a table segment: the fake of the tests, and the real one."""

import pytest

from anabranch.common.errors import (
    BadPacket,
    CorruptBlock,
    InvalidRequest,
    OutcomeUnknown,
    SegmentNotFound,
    WrongHost,
)
from anabranch.common.model.table import KEY_SIZE_BYTES_MAX
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    REQUESTS_REMEMBERED,
    GetEntries,
    TableRead,
    TableUpdated,
    UpdateTable,
)
from anabranch.common.wire.table import UPDATE_ENTRIES_MAX, encode_update
from anabranch.common.wire.table_columns import ABSENT, ANY, Refusal, encode_keys
from kit.served_table import (
    CLIENT,
    SEGMENT,
    STREAM_SEGMENT,
    ServedTable,
)

OTHER_CLIENT = bytes(reversed(range(16)))


# --- updates ------------------------------------------------------------------------------


async def test_an_update_gives_its_entries_consecutive_versions(table: ServedTable) -> None:
    told, refusals = await table.update([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    later = await table.put(b"c", b"4")
    assert refusals == []
    assert later > told.version + 2
    assert await table.everything() == {
        b"a": (told.version + 2, b"3"), b"b": (told.version + 1, b"2"), b"c": (later, b"4"),
    }  # fmt: skip
    described = await table.describe()
    assert (described.segment_number, described.entries) == (told.segment_number, 3)
    assert not described.sealed


async def test_an_update_removes_entries_and_removing_nothing_succeeds(table: ServedTable) -> None:
    await table.put(b"a", b"1")
    told, refusals = await table.update([(b"a", None), (b"never", None)])
    assert (refusals, told.version > 0) == ([], True)
    assert await table.everything() == {}


async def test_conditions_hold_for_an_absent_key_and_for_the_present_version(
    table: ServedTable,
) -> None:
    first, _ = await table.update([(b"a", b"1")], [ABSENT])
    life = first.segment_number
    second, refusals = await table.update([(b"a", b"2")], [first.version], life=life)
    assert refusals == []
    _, refusals = await table.update([(b"a", b"3")], [first.version], life=life)
    assert refusals == [Refusal(0, 0, second.version)]
    _, refusals = await table.update([(b"a", b"3")], [ABSENT])
    assert refusals == [Refusal(0, 0, second.version)]
    _, refusals = await table.update([(b"b", b"3")], [second.version], life=life)
    assert refusals == [Refusal(0, 0, ABSENT)]
    _, refusals = await table.update([(b"a", None)], [second.version], life=life)
    assert refusals == []
    assert await table.everything() == {}


async def test_a_version_of_another_life_of_the_segment_never_holds(table: ServedTable) -> None:
    first, _ = await table.update([(b"a", b"1")])
    for life in (first.segment_number + 1, -1, 0):
        _, refusals = await table.update([(b"a", b"2")], [first.version], life=life)
        assert refusals == [Refusal(0, 0, first.version)]
    _, refusals = await table.update([(b"b", b"2"), (b"c", b"3")], [ABSENT, ANY], life=-1)
    assert refusals == []


async def test_a_unit_is_performed_whole_or_not_at_all(table: ServedTable) -> None:
    first = await table.put(b"a", b"1")
    told, refusals = await table.update(
        [(b"x", b"1"), (b"a", b"2"), (b"y", b"1"), (b"b", b"1")],
        [ANY, ABSENT, ABSENT, ABSENT],
        [3, 1],
    )
    assert refusals == [Refusal(0, 1, first)]
    assert await table.everything() == {b"a": (first, b"1"), b"b": (told.version, b"1")}


async def test_only_performed_entries_count_for_versions(table: ServedTable) -> None:
    await table.put(b"a", b"1")
    told, refusals = await table.update(
        [(b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"d", b"1")],
        [ANY, ANY, ABSENT, ANY],
        [2, 1, 1],
    )
    assert [each.unit for each in refusals] == [1]
    (row,) = await table.get(b"d")
    assert row.version == told.version + 2


async def test_a_unit_sees_the_units_before_it_and_its_own_earlier_entries(
    table: ServedTable,
) -> None:
    told, refusals = await table.update(
        [(b"a", b"1"), (b"a", b"2"), (b"a", None), (b"a", b"4"), (b"a", b"5")],
        [ABSENT, ABSENT, ANY, ABSENT, ANY],
        [1, 1, 2, 1],
    )
    assert refusals == [Refusal(1, 1, told.version)]
    assert await table.everything() == {b"a": (told.version + 3, b"5")}


async def test_a_refused_unit_leaves_nothing_for_the_units_after_it(table: ServedTable) -> None:
    first = await table.put(b"a", b"1")
    _, refusals = await table.update(
        [(b"new", b"1"), (b"a", b"2"), (b"new", b"3")], [ANY, ABSENT, ABSENT], [2, 1]
    )
    assert refusals == [Refusal(0, 1, first)]
    assert (await table.get(b"new"))[0].value == b"3"


async def test_an_update_that_is_refused_as_a_whole_changes_no_entry(table: ServedTable) -> None:
    await table.put(b"a", b"1")
    before = await table.everything()
    told, refusals = await table.update([(b"a", b"2"), (b"b", b"2")], [ABSENT, ABSENT])
    assert (told.version, len(refusals)) == (ABSENT, 1)
    assert await table.everything() == before
    _, refused = await table.blocks()
    assert (list(refused.keys), list(refused.refusals)) == ([], refusals)


# --- exactly once -------------------------------------------------------------------------


async def test_a_repeat_gets_the_first_answer_whatever_happened_since(table: ServedTable) -> None:
    first = await table.update([(b"a", b"1"), (b"b", b"1")], [ABSENT, ANY], [1, 1], number=1)
    await table.update([(b"a", None)], number=2)
    assert (
        await table.update([(b"a", b"1"), (b"b", b"1")], [ABSENT, ANY], [1, 1], number=1) == first
    )
    assert list(await table.everything()) == [b"b"]


async def test_a_repeat_of_a_partly_refused_update_gets_its_refusals_again(
    table: ServedTable,
) -> None:
    await table.update([(b"a", b"1")], number=1)
    first = await table.update([(b"a", b"2"), (b"b", b"2")], [ABSENT, ABSENT], [1, 1], number=2)
    await table.update([(b"a", None)], number=3)
    again = await table.update([(b"a", b"2"), (b"b", b"2")], [ABSENT, ABSENT], [1, 1], number=2)
    assert again == first
    assert len(first[1]) == 1


async def test_a_repeat_of_a_refused_update_gets_its_refusal_again(table: ServedTable) -> None:
    await table.update([(b"a", b"1")], number=1)
    first = await table.update([(b"a", b"2")], [ABSENT], number=2)
    await table.update([(b"a", None)], number=3)
    assert await table.update([(b"a", b"2")], [ABSENT], number=2) == first
    assert await table.everything() == {}


async def test_repeats_are_recognised_after_a_restart(table: ServedTable) -> None:
    told = [
        await table.update([(b"a", b"%d" % number), (b"b", b"x")], [ANY, ABSENT], [1, 1],
                           number=number)
        for number in range(1, 4)
    ]  # fmt: skip
    await table.restart()
    for number in (1, 3, 2):
        again = await table.update(
            [(b"a", b"%d" % number), (b"b", b"x")], [ANY, ABSENT], [1, 1], number=number
        )
        assert again == told[number - 1]
    assert (await table.get(b"a"))[0].value == b"3"


async def test_numbers_may_arrive_in_any_order_and_clients_do_not_share_them(
    table: ServedTable,
) -> None:
    for number in (3, 1, 2):
        await table.update([(b"%d" % number, b"x")], number=number)
    await table.update([(b"other", b"x")], number=1, client=OTHER_CLIENT)
    assert list(await table.everything()) == [b"1", b"2", b"3", b"other"]


async def test_an_old_number_that_is_no_longer_remembered_has_an_unknown_outcome(
    table: ServedTable,
) -> None:
    for number in range(1, REQUESTS_REMEMBERED + 3):
        await table.update([(b"a", b"%d" % number)], number=number)
    for number in (1, 2):
        with pytest.raises(OutcomeUnknown):
            await table.update([(b"a", b"%d" % number)], number=number)
    repeated, _ = await table.update([(b"a", b"3")], number=3)
    assert repeated.version > 0
    assert (await table.get(b"a"))[0].value == b"%d" % (REQUESTS_REMEMBERED + 2)


async def test_a_late_request_from_before_a_gap_is_not_performed(table: ServedTable) -> None:
    await table.update([(b"a", b"new")], number=1 + REQUESTS_REMEMBERED)
    with pytest.raises(OutcomeUnknown):
        await table.update([(b"a", b"old")], number=1)
    assert (await table.get(b"a"))[0].value == b"new"


async def test_after_a_restart_everything_is_as_before(table: ServedTable) -> None:
    for number in range(10):
        await table.put(b"%d" % number, b"x" * number)
    await table.update([(b"3", None)])
    before = await table.everything()
    await table.restart()
    assert await table.everything() == before


# --- requests that are wrong --------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "units"),
    [([ANY], []), ([ANY] * 3, []), ([-3, ANY], []), ([], [1]), ([], [3]), ([], [2, 0])],
)
async def test_columns_that_do_not_fit_the_entries_are_refused(
    table: ServedTable, conditions: list[int], units: list[int]
) -> None:
    with pytest.raises((BadPacket, InvalidRequest)):
        await table.update([(b"a", b"1"), (b"b", b"2")], conditions, units)
    assert await table.everything() == {}


@pytest.mark.parametrize(
    ("client", "number"), [(OTHER_CLIENT, 1), (CLIENT, 2), (CLIENT, 0), (CLIENT[:15], 1)]
)
async def test_a_request_that_contradicts_its_block_is_refused(
    table: ServedTable, client: bytes, number: int
) -> None:
    block = encode_update([b"a"], [b"1"], client_id=CLIENT, request_number=1)
    request = UpdateTable(segment=SEGMENT, client_id=client, request_number=number)
    with pytest.raises(InvalidRequest):
        await table.ask(request, TableUpdated, block)


@pytest.mark.parametrize("key", [b"", b"k" * (KEY_SIZE_BYTES_MAX + 1)], ids=["empty", "too long"])
async def test_a_key_over_the_limits_is_refused(table: ServedTable, key: bytes) -> None:
    with pytest.raises(InvalidRequest):
        await table.put(key, b"x")


async def test_too_many_entries_and_no_table_block_are_refused(table: ServedTable) -> None:
    with pytest.raises(InvalidRequest):
        await table.update([(b"%d" % n, b"") for n in range(UPDATE_ENTRIES_MAX + 1)])
    events = encode_block([b"x"], writer_id=CLIENT, first_event_number=1, base_timestamp_ms=0)
    request = UpdateTable(segment=SEGMENT, client_id=CLIENT, request_number=1)
    with pytest.raises((CorruptBlock, InvalidRequest)):
        await table.ask(request, TableUpdated, events)


async def test_other_segments_and_other_epochs_are_refused(table: ServedTable) -> None:
    with pytest.raises(InvalidRequest):
        await table.update([(b"a", b"1")], segment=STREAM_SEGMENT)
    with pytest.raises(SegmentNotFound):
        await table.update([(b"a", b"1")], segment=SEGMENT.replace("stock", "other"))
    with pytest.raises(WrongHost):
        await table.ask(
            GetEntries(segment=SEGMENT, container_epoch=99), TableRead, encode_keys([b"a"])
        )
