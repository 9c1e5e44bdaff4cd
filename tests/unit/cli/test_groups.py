"""The commands about reader groups, through both sessions, without a cluster."""

import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from anabranch.cli.client_session import Session
from anabranch.cli.commands.group_options import GroupOptions, configured, cuts_in, started
from anabranch.cli.commands.groups import _summary
from anabranch.cli.events import GroupReadRequest
from anabranch.cli.groups import Groups
from anabranch.client import (
    GroupReaderSettings,
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.client.groups import group as group_module
from anabranch.common.errors import (
    AnabranchError,
    GenerationMismatch,
    InvalidRequest,
    ReaderGroupExists,
    ReaderGroupNotFound,
    ReaderNotFound,
    Unavailable,
)
from anabranch.common.model.names import SegmentId
from anabranch.common.wire.messages import Message, ReadSegment
from kit.client_bench import STREAM
from kit.fake_segstore import no_faults
from kit.gateway_bench import EVENTS, NDJSON, GatewayBench
from kit.http_sessions import both_sessions

GROUP = "plant/w"
CONFIG = ReaderGroupConfig(
    (
        GroupStream(
            STREAM, (SegmentPosition(SegmentId(0), 0, 1),), (SegmentPosition(SegmentId(0), 9),)
        ),
    ),
    lease_ms=5000,
    automatic_checkpoint_ms=60_000,
    checkpoints_max=5,
    retention=GroupRetention.MANUAL,
    release_after_checkpoint=True,
)
FAST = GroupReaderSettings(save_interval_s=0.02)


async def write(g: GatewayBench, *numbers: int) -> None:
    content = "\n".join(map(str, numbers))
    assert (await g.http.post(EVENTS, content=content, headers=NDJSON)).status_code == 200


async def everything(groups: Groups, name: str) -> list[Any]:
    """What a group's life tells, its name left out."""
    told: list[Any] = []
    await groups.create(name, ReaderGroupConfig((GroupStream(STREAM),)), wait_s=5.0)
    told.append(await groups.config(name))
    shown = dict(await groups.show(name))
    shown["lag"] = {**shown["lag"], "seconds": 0}
    shown["segments"] = [{**one, "lag": one["lag"]["events"]} for one in shown["segments"]]
    told.append({**shown, "group": ""})
    told.append(await groups.checkpoint(name, "c", wait_s=5.0))
    told.append(await groups.cuts(name, wait_s=5.0))
    await groups.reset(name, CONFIG, expected_generation=0, wait_s=5.0)
    told.append(await groups.config(name))
    subscribers = await groups.subscribers(STREAM)
    told.append([{**one, "subscriber": ""} for one in subscribers])
    for failing in (
        groups.create(name, CONFIG, wait_s=5.0),
        groups.reset(name, None, expected_generation=0, wait_s=5.0),
        groups.offline(name, "nobody"),
    ):
        with pytest.raises(AnabranchError) as raised:
            await failing
        told.append((type(raised.value), raised.value.message))
    await groups.delete(name, wait_s=5.0)
    with pytest.raises(ReaderGroupNotFound):
        await groups.show(name)
    return told


async def test_both_sessions_say_and_do_the_same() -> None:
    async with both_sessions() as (g, client, http):
        await write(g, 1, 2, 3)
        over_nats = await everything(client.groups, "plant/a")
        over_http = await everything(http.groups, "plant/b")
        await client.groups.create("plant/c", CONFIG, wait_s=5.0)
        listed = [[n async for n in s.groups.list_names("plant")] for s in (client, http)]

    assert over_nats == over_http
    assert listed == [["c"], ["c"]]
    assert [error for error, _ in over_nats[-3:]] == [
        ReaderGroupExists,
        GenerationMismatch,
        ReaderNotFound,
    ]


async def test_a_checkpoint_that_is_not_reached_in_time_names_the_reader_in_both_sessions() -> None:
    async with both_sessions() as (g, client, http):
        await client.groups.create(GROUP, ReaderGroupConfig((GroupStream(STREAM),)), wait_s=5.0)
        async with g.bench.client.reader_group(GROUP).reader("slow", FAST):
            made = [
                await session.groups.checkpoint(GROUP, name, wait_s=0.0)
                for name, session in (("a", client), ("b", http))
            ]

    assert made == [{"name": n, "state": "running", "waiting": ["slow"]} for n in ("a", "b")]


# --- reading ------------------------------------------------------------------------------


async def read(session: Session, count: int) -> list[int]:
    request = GroupReadRequest(GROUP, "one", count)
    async with aclosing(session.read_group(request)) as batches:
        return [int(payload) async for batch in batches for payload in batch.payloads]


async def test_a_session_reads_on_where_the_last_reader_of_the_group_stopped() -> None:
    async with both_sessions() as (g, client, http):
        await client.groups.create(GROUP, ReaderGroupConfig((GroupStream(STREAM),)), wait_s=5.0)
        await write(g, 1, 2, 3, 4, 5)
        assert await read(http, 2) == [1, 2]
        assert await read(client, 1) == [3]
        assert await read(http, 2) == [4, 5]
        assert await read(client, 0) == []
        assert (await client.groups.show(GROUP))["lag"]["events"] == 0


# --- options ------------------------------------------------------------------------------


def test_options_change_what_they_name_and_nothing_else() -> None:
    made = configured(None, GroupOptions(stream=(STREAM,), lease="5s", retention="automatic"))
    assert made == ReaderGroupConfig(
        (GroupStream(STREAM),), lease_ms=5000, retention=GroupRetention.AUTOMATIC
    )
    changed = configured(CONFIG, GroupOptions(automatic_checkpoint="0", checkpoints_max=2))
    assert (changed.automatic_checkpoint_ms, changed.checkpoints_max) == (0, 2)
    assert (changed.streams, changed.lease_ms) == (CONFIG.streams, 5000)


def test_cuts_of_a_file_become_starts_of_the_streams_that_the_group_reads() -> None:
    text = json.dumps({"stream_cuts": {STREAM: {"0": {"offset": 7, "event_index": 2}}}})
    (stream,) = started(CONFIG, cuts_in(text)).streams
    assert stream.start == (SegmentPosition(SegmentId(0), 7, 2),)
    other = text.replace(STREAM, "plant/other")
    with pytest.raises(InvalidRequest):
        started(CONFIG, cuts_in(other))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: configured(None, GroupOptions()),
        lambda: configured(CONFIG, GroupOptions(lease="soon")),
        lambda: configured(CONFIG, GroupOptions(lease="1ms")),
        lambda: cuts_in("[]"),
        lambda: cuts_in('{"a/b": {"0": 5}}'),
        lambda: cuts_in("no"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest):
        wrong()


async def test_a_group_whose_log_is_away_is_shown_as_such_by_both_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_module, "LOG_TIMEOUT_S", 0.05)

    def away(_: object, message: Message) -> AnabranchError | None:
        is_log = isinstance(message, ReadSegment) and "_RG" in message.segment
        return Unavailable("the container moves") if is_log else None

    async with both_sessions() as (g, client, http):
        await client.groups.create(GROUP, ReaderGroupConfig((GroupStream(STREAM),)), wait_s=5.0)
        assert (await client.groups.show(GROUP))["log_answers"] is True
        g.bench.store.fault = away
        shown = [dict(await session.groups.show(GROUP)) for session in (client, http)]
        g.bench.store.fault = no_faults

    assert shown[0] == shown[1]
    assert (shown[0]["log_answers"], shown[0]["generation"]) == (False, 0)
    assert ("readers", "hand out nothing: the group's log does not answer") in _summary(shown[0])
