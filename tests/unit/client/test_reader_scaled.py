"""Where a reader of a scaled or truncated stream starts, ends and stands."""

import asyncio
from collections.abc import Sequence

import pytest

from anabranch.client import EventReader
from anabranch.common.errors import (
    InvalidRequest,
    Unavailable,
)
from anabranch.common.model.hashing import routing_position
from anabranch.common.wire.messages import ReadSegment
from kit.client_bench import STREAM, Bench, bench, reader_settings, until, writer_settings
from kit.history import KeyedHistory
from kit.scaling import assert_covers, chain, merge, shift, split

READER = reader_settings(wait_ms=10)
KEYS = [f"key {number}" for number in range(6)]
"""In both halves of the key space."""


async def write(b: Bench, history: KeyedHistory, *payloads: str) -> None:
    """Each payload by two keys."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=100)) as writer:
        for payload in payloads:
            for key in KEYS:
                text = f"{payload} {key}".encode()
                writer.write(text, key)
                history.wrote(text, key)


async def written(b: Bench, *epochs: str) -> KeyedHistory:
    """Something in every epoch."""
    history = KeyedHistory()
    await write(b, history, "0", "1", "2")
    for epoch in epochs:
        for _ in {"split": split, "merge": merge, "shift": shift, "chain": chain}[epoch](b):
            pass
        await write(b, history, f"{epoch} 0", f"{epoch} 1")
    return history


def behind_first_blocks(b: Bench, *numbers: int) -> dict[int, int]:
    """A cut of these segments."""
    named = [b.every_segment()[number] for number in numbers]
    return {each.segment_id: b.store.segments[each.name].boundaries[0] for each in named}


async def rest(reader: EventReader) -> list[tuple[str | None, bytes]]:
    return [(event.key, event.payload) async for event in reader]


def keyed(b: dict[str | None, list[bytes]]) -> list[tuple[str | None, bytes]]:
    return [(key, payload) for key, payloads in b.items() for payload in payloads]


# --- starts -----------------------------------------------------------------------------------


async def test_the_head_of_a_truncated_stream_is_where_it_was_truncated() -> None:
    async with bench() as b:
        history = await written(b, "split", "merge")
        kept = behind_first_blocks(b, 1, 2)
        before = await b.by_key()
        b.truncate(kept)
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            positions = reader.positions()
            found = await rest(reader)
        assert sorted(positions.values()) == sorted((offset, 0) for offset in kept.values())
        assert 0 < len(found) < sum(map(len, before.values()))
        by_key: dict[str | None, list[bytes]] = {}
        for key, payload in found:
            by_key.setdefault(key, []).append(payload)
        assert all(history.written[key][-len(got) :] == got for key, got in by_key.items())


async def test_the_tail_is_where_the_present_segments_end() -> None:
    async with bench() as b:
        history = await written(b, "split", "shift")
        history.written.clear()
        async with b.client.reader(STREAM, "tail", settings=READER) as reader:
            await write(b, history, "new")
            for _ in b.scale_to(1):
                pass
            await write(b, history, "newer")
            b.seal()
            history.check(await rest(reader))


async def test_positions_of_any_older_epoch_work_as_long_as_nothing_was_truncated() -> None:
    async with bench(2) as b:
        history = await written(b)
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            first = await anext(reader)
            token = reader.positions()
        assert all(".#epoch.0" in name for name in token)
        for _ in chain(b):
            pass
        await write(b, history, "later")
        b.seal()
        async with b.client.reader(STREAM, token, settings=READER) as reader:
            history.check([(first.key, first.payload), *await rest(reader)])


async def test_what_positions_leave_out_is_read_from_the_head() -> None:
    async with bench(2) as b:
        history = await written(b, "split")
        names = [segment.name for segment in b.every_segment()]
        b.seal()
        async with b.client.reader(STREAM, {names[1]: (0, 0)}, settings=READER) as reader:
            assert set(reader.positions()) == {names[0], names[1]}
            history.check(await rest(reader))
        async with b.client.reader(STREAM, {}, settings=READER) as reader:
            history.check(await rest(reader))


@pytest.mark.parametrize(
    "named",
    [(0, 2), (2,), (0, 1, 2)],
    ids=["a segment and its successor", "half of a successor", "both and one more"],
)
async def test_positions_that_are_no_cut_are_refused(named: Sequence[int]) -> None:
    async with bench(2) as b:
        await written(b, "split")
        names = [segment.name for segment in b.every_segment()]
        start = {names[number]: (0, 0) for number in named}
        with pytest.raises(InvalidRequest, match="cover every key"):
            await b.client.reader(STREAM, start).__aenter__()


@pytest.mark.parametrize(
    "name", ["plant/sensors/7.#epoch.1", "plant/sensors/0.#epoch.9", "plant/other/0.#epoch.0", "?"]
)
async def test_positions_of_segments_that_never_were_are_refused(name: str) -> None:
    async with bench() as b:
        await written(b, "split")
        with pytest.raises(InvalidRequest, match="does not have"):
            await b.client.reader(STREAM, {name: (0, 0)}).__aenter__()


@pytest.mark.parametrize("taken", [0, 1, 5])
async def test_a_head_cut_with_a_future_segment_is_read_in_order_and_continued(taken: int) -> None:
    """The stream begins in the second of two segments, and with what both were merged into."""
    async with bench(2) as b:
        await write(b, KeyedHistory(), "0", "1")
        for _ in merge(b):
            pass
        await write(b, KeyedHistory(), "2")
        whole = await b.by_key()
        _, high, merged = b.every_segment()
        b.truncate({high.segment_id: 0, merged.segment_id: -1})
        b.seal()
        found = []
        async with b.client.reader(STREAM, settings=READER) as reader:
            assert reader.positions() == {high.name: (0, 0), merged.name: (-1, 0)}
            for _ in range(taken):
                event = await anext(reader)
                found.append((event.key, event.payload))
            positions = reader.positions()
        async with b.client.reader(STREAM, positions, settings=READER) as reader:
            found += await rest(reader)
        by_key: dict[str | None, list[bytes]] = {}
        for key, payload in found:
            by_key.setdefault(key, []).append(payload)
        low_keys = {key for key in whole if routing_position(str(key)) < 0.5}
        assert low_keys
        assert by_key == {
            key: payloads[-1:] if key in low_keys else payloads for key, payloads in whole.items()
        }


# --- ends -------------------------------------------------------------------------------------


async def test_until_tail_reads_all_epochs_and_ends_at_the_lengths_of_the_start() -> None:
    async with bench() as b:
        history = await written(b, "split", "shift")
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            await write(b, KeyedHistory(), "too late")
            for _ in merge(b):
                pass
            await write(b, KeyedHistory(), "later still")
            history.check(await rest(reader))
            assert await reader.next_batch() is None
            positions = reader.positions()
        assert_covers(b, list(positions))
        b.seal()
        later = KeyedHistory()
        for payload in ("too late", "later still"):
            for key in KEYS:
                later.wrote(f"{payload} {key}".encode(), key)
        async with b.client.reader(STREAM, positions, settings=READER) as reader:
            later.check(await rest(reader))


async def test_until_tail_waits_for_the_end_of_a_scale_so_that_it_misses_nothing() -> None:
    async with bench(2) as b, asyncio.TaskGroup() as tasks:
        history = await written(b)
        stages = merge(b)
        while next(stages) != "sealed":
            pass
        low = b.every_segment()[0]
        assert b.store.segments[low.name].sealed
        await write(b, history, "into the successor of the half that is sealed")
        stored = tasks.create_task(b.by_key())
        asked: list[str] = []
        b.control.before_query = asked.append
        await until(lambda: asked.count("current_segments") > 2)
        assert not stored.done()
        for _ in stages:
            pass
        history.check(keyed(await stored))


async def test_a_scale_that_does_not_end_is_named_by_who_wants_the_tail() -> None:
    async with bench(2) as b:
        stages = merge(b)
        while next(stages) != "sealed":
            pass
        settings = reader_settings(retry_timeout_s=0.05)
        with pytest.raises(Unavailable, match="scale does not end"):
            await b.client.reader(STREAM, "tail", settings=settings).__aenter__()


async def test_a_sealed_stream_of_several_epochs_ends_after_all_of_them() -> None:
    async with bench() as b:
        history = await written(b, "chain")
        b.seal()
        for _ in range(2):
            async with b.client.reader(STREAM, settings=READER) as reader:
                history.check(await rest(reader))
                assert_covers(b, list(reader.positions()))


async def test_a_stream_being_sealed_is_waited_for() -> None:
    async with bench() as b, asyncio.TaskGroup() as tasks:
        history = await written(b)
        b.store.seal()
        async with b.client.reader(STREAM, settings=READER) as reader:
            reading = tasks.create_task(rest(reader))
            asked: list[str] = []
            b.control.before_query = asked.append
            await until(lambda: asked.count("successors") > 3)
            assert not reading.done()
            b.seal()
            history.check(await reading)


# --- in between -------------------------------------------------------------------------------


async def test_a_cancelled_read_around_the_end_of_a_segment_loses_nothing() -> None:
    async with bench(2) as b, asyncio.TaskGroup() as tasks:
        history = await written(b, "shift", "chain")
        b.seal()
        found = []
        async with b.client.reader(STREAM, settings=READER) as reader:
            while True:
                waiting = tasks.create_task(reader.next_batch())
                for _ in range(3):
                    await asyncio.sleep(0)
                if not waiting.done():
                    waiting.cancel()
                    await asyncio.wait({waiting})
                if waiting.cancelled():
                    continue
                batch = waiting.result()
                if batch is None:
                    break
                found += [(event.key, event.payload) for event in batch.events()]
        history.check(found)


async def test_the_read_ahead_is_shared_anew_when_segments_take_the_place_of_others() -> None:
    async with bench(2) as b, asyncio.TaskGroup() as tasks:
        settings = reader_settings(read_ahead_bytes=600_000, read_size_bytes=600_000, wait_ms=5)
        async with b.client.reader(STREAM, settings=settings) as reader:
            waiting = tasks.create_task(reader.next_batch())
            for shares, stages in ((3, split), (2, merge)):
                for _ in stages(b):
                    pass
                await until(lambda count=shares: len(reader.positions()) == count)  # type: ignore[misc]
                asked = len(b.store.requests)
                await until(lambda seen=asked: len(b.store.requests) > seen + 10)  # type: ignore[misc]
                reads = [m for m in b.store.requests[asked + 3 :] if isinstance(m, ReadSegment)]
                assert {m.size_max for m in reads} == {600_000 // shares}
            waiting.cancel()


# --- bulk -------------------------------------------------------------------------------------


async def test_the_runs_of_all_epochs_hold_every_event_once() -> None:
    async with bench() as b:
        history = await written(b, "split", "shift", "merge")
        ranges = b.client.ranges()
        runs = await ranges.runs(b.ref)
        assert [run.segment_id for run in runs] == sorted(b.stream.lives)
        found: list[tuple[str | None, bytes]] = []
        for run in runs:
            assert run.end_offset is not None
            at = run.start_offset
            while at < run.end_offset:
                data = await ranges.read(run.name, at, run.end_offset)
                found += b.events_in(data)
                at += len(data)
        history.check(found)


async def test_the_runs_of_a_truncated_stream_begin_at_its_head() -> None:
    async with bench() as b:
        await written(b, "split")
        offsets = behind_first_blocks(b, 1, 2)
        b.truncate(offsets)
        runs = await b.client.ranges().runs(b.ref)
        assert {run.segment_id: run.start_offset for run in runs} == offsets
