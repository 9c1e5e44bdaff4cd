"""The segment store as a process, with a real message server and a real directory."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.contracts.load import LoadReport, SegmentLoad
from anabranch.common.contracts.segment_requests import PAYLOAD_SIZE_BYTES_MAX
from anabranch.common.errors import (
    OffsetMismatch,
    OutcomeUnknown,
    StaleRequest,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.common.model.watermark import (
    MarkedSegment,
    Watermark,
    decode_watermark,
    watermark_segment,
)
from anabranch.common.runtime.exit_codes import EXIT_DISK_FAILED
from anabranch.common.runtime.ids import SystemIds
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Appended,
    AppendOnce,
    AppendSetup,
    CreateSegment,
    Done,
    Failed,
    FlushContainer,
    KeepAlive,
    ReadSegment,
    SegmentRead,
    SetupAppend,
    Stamp,
    decode_message,
)
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.projections import watermark_log
from anabranch.controller.projections.watermark_log import WatermarkLog
from kit.infra import NatsServer
from kit.infra.hurting import HurtNats
from kit.store_process import SEGMENT, START_DEADLINE_S, Cluster, ask, connect, segment_store
from kit.wire_client import WRITER

STOP_DEADLINE_S = 20.0


@pytest.fixture
async def cluster(nats_server: NatsServer) -> AsyncIterator[Cluster]:
    client = await connect_nats(nats_target(nats_server.url), "test")
    cluster = Cluster(client)
    await cluster.prepare()
    yield cluster
    await client.close()


async def test_what_was_acknowledged_survives_kills_and_a_clean_stop(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    directory = tmp_path / "data"
    expected = b""
    for round_number in range(1, 4):
        async with segment_store(directory, nats_server.url, BIND="127.0.0.1:0") as process:
            if round_number == 1:
                await cluster.assign()
            await cluster.opened(round_number)
            client = await connect(cluster)
            if round_number == 1:
                assert await client.create(SEGMENT) == Done()
            assert await client.read_all(SEGMENT) == expected
            setup = await client.setup(SEGMENT)
            assert setup.last_event_number == 10 * (round_number - 1)
            for number in range(1, 11):
                first = setup.last_event_number + number
                expected += client.append(first, [b"%d" % first * 50])
            reply = None
            while not isinstance(reply, Appended) or reply.last_event_number < 10 * round_number:
                reply, _ = await client.receive()
            if round_number == 2:
                assert await client.call(FlushContainer(container=0)) == Done()
            process.send_signal(signal.SIGKILL if round_number < 3 else signal.SIGTERM)
            await client.close()
            await process.communicate()
            assert process.returncode == (-signal.SIGKILL if round_number < 3 else 0)


def child_of(pid: int) -> int:
    """The one child of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1, children
    return int(children[0])


async def test_a_store_with_a_writer_process_survives_its_own_and_the_writers_death(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    directory = tmp_path / "data"
    expected = b""
    for round_number, victim in enumerate(("writer", "store", "nobody"), 1):
        store = segment_store(directory, nats_server.url, JOURNAL_WRITER="process")
        async with store as process:
            if round_number == 1:
                await cluster.assign()
            await cluster.opened(round_number)
            client = await connect(cluster)
            if round_number == 1:
                assert await client.create(SEGMENT) == Done()
            assert await client.read_all(SEGMENT) == expected
            setup = await client.setup(SEGMENT)
            assert setup.last_event_number == round_number - 1
            expected += client.append(round_number, [bytes([round_number]) * 5000])
            assert isinstance((await client.receive())[0], Appended)
            if victim == "writer":
                os.kill(child_of(process.pid), signal.SIGKILL)
            else:
                process.send_signal(signal.SIGKILL if victim == "store" else signal.SIGTERM)
            async with asyncio.timeout(STOP_DEADLINE_S):
                output, _ = await process.communicate()
            await client.close()
        ends = {"writer": EXIT_DISK_FAILED, "store": -signal.SIGKILL, "nobody": 0}
        assert process.returncode == ends[victim]
        assert b'"writer": "process"' in output
        assert (b'"code": "disk-failed"' in output) == (victim == "writer")


async def test_control_requests_are_served_over_nats_and_serving_outlives_nats(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    async with segment_store(tmp_path / "data", nats_server.url) as process:
        await cluster.assign()
        await cluster.opened(1)
        create = CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1))
        assert await ask(cluster, "create", create) == (Done(), b"")
        client = await connect(cluster)
        nats_server.stop()
        await client.setup(SEGMENT)
        block = client.append(1, [b"without a message server"])
        assert isinstance((await client.receive())[0], Appended)
        assert await client.read_all(SEGMENT) == block
        await client.close()
        # and a store without a message server still stops when it is told to
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_DEADLINE_S):
            await process.communicate()
        assert process.returncode == 0


async def test_a_store_tells_its_load_period_by_period(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    heard = await cluster.client.subscribe(subjects.load_report("*"))

    async def next_report() -> LoadReport:
        message = await heard.next_msg(timeout=START_DEADLINE_S)
        assert message.subject == subjects.load_report((await cluster.node()).node_id)
        return LoadReport.model_validate_json(message.data)

    async with segment_store(tmp_path / "data", nats_server.url, LOAD_PERIOD_S="0.1"):
        await cluster.assign()
        await cluster.opened(1)
        create = CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1))
        assert await ask(cluster, "create", create) == (Done(), b"")
        request, block = numbered_append(1, 1000)
        answer, _ = await ask(cluster, "append", request, block)
        assert isinstance(answer, Appended)
        first = report = await next_report()
        loads = loads_of(report)
        for _ in range(10):
            before, report = report, await next_report()
            assert report.session == first.session
            assert report.sequence > before.sequence
            loads += loads_of(report)
        # A report is published once, so a connection that is cut may take some with it.
        whole = report.sequence == first.sequence + 10
        assert whole or isinstance(nats_server, HurtNats)
        assert not whole or loads == [SegmentLoad(segment=SEGMENT, events=1, size=len(block))]
        assert [found.container_epoch for found in report.containers] == [1]
        assert report.others_idle


def loads_of(report: LoadReport) -> list[SegmentLoad]:
    return [one for found in report.containers for one in found.segments]


def numbered_append(number: int, size: int) -> tuple[AppendOnce, bytes]:
    block = encode_block(
        [bytes(size)], writer_id=WRITER, first_event_number=number, base_timestamp_ms=0
    )
    request = AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=number, count=1)
    return request, block


async def test_appends_and_reads_over_nats_survive_a_kill_and_repeats_are_stored_once(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    expected = b""
    for round_number in range(1, 3):
        async with segment_store(tmp_path / "data", nats_server.url) as process:
            if round_number == 1:
                await cluster.assign()
            await cluster.opened(round_number)
            if round_number == 1:
                create = CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1))
                assert await ask(cluster, "create", create) == (Done(), b"")
            setup = SetupAppend(segment=SEGMENT, writer_id=WRITER, session=1)
            told = AppendSetup(session=1, last_event_number=2 * (round_number - 1))
            assert await ask(cluster, "setup", setup) == (told, b"")
            for number in (told.last_event_number + 1, told.last_event_number + 2):
                request, block = numbered_append(number, 250_000)
                expected += block
                stored = Appended(session=0, last_event_number=number, length=len(expected))
                counted = replace(stored, event_count=number)
                assert await ask(cluster, "append", request, block) == (counted, b"")
                assert await ask(cluster, "append", request, block) == (stored, b"")
            data = b""
            while len(data) < len(expected):
                read = ReadSegment(segment=SEGMENT, offset=len(data), size_max=1 << 30)
                reply, more = await ask(cluster, "read", read)
                assert isinstance(reply, SegmentRead)
                assert 0 < len(more) <= PAYLOAD_SIZE_BYTES_MAX
                data += more
            assert data == expected
            process.kill()
            await process.communicate()


async def test_a_read_over_nats_waits_at_the_tail_and_is_told_when_the_store_stops(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    async with segment_store(tmp_path / "data", nats_server.url) as process:
        await cluster.assign()
        await cluster.opened(1)
        await ask(cluster, "create", CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1)))
        request, block = numbered_append(1, 100)
        async with asyncio.TaskGroup() as group:
            read = ReadSegment(segment=SEGMENT, offset=0, size_max=1 << 20, wait_ms=4000)
            waiting = group.create_task(ask(cluster, "read", read))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await ask(cluster, "append", request, block)
        assert waiting.result() == (SegmentRead(offset=0, at_tail=True), block)
        async with asyncio.TaskGroup() as group:
            read = ReadSegment(segment=SEGMENT, offset=len(block), size_max=1 << 20, wait_ms=60_000)
            waiting = group.create_task(ask(cluster, "read", read))
            await asyncio.sleep(0.1)
            process.send_signal(signal.SIGTERM)
        (reply, _) = waiting.result()
        assert isinstance(reply, Failed)
        assert reply.code == "unavailable"
        await process.communicate()
        assert process.returncode == 0


async def test_a_stopped_owner_that_wakes_after_a_take_over_acknowledges_nothing(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    directory = tmp_path / "data"
    async with segment_store(directory, nats_server.url) as older:
        await cluster.assign()
        await cluster.opened(1)
        client = await connect(cluster)
        await client.create(SEGMENT)
        await client.setup(SEGMENT)
        block = client.append(1, [b"acknowledged"])
        assert isinstance((await client.receive())[0], Appended)
        older.send_signal(signal.SIGSTOP)
        client.append(2, [b"too late"])
        async with segment_store(directory, nats_server.url, TAKE_OVER="true"):
            await cluster.opened(2)
            older.send_signal(signal.SIGCONT)
            # the older owner refuses or hangs up, and its process ends with an error
            packet = await client.receive_packet()
            while packet is not None:
                assert isinstance(decode_message(packet), Failed | KeepAlive)
                packet = await client.receive_packet()
            async with asyncio.timeout(STOP_DEADLINE_S):
                output, _ = await older.communicate()
            assert older.returncode == 1
            assert "deposed" in output.decode()
            newer = await connect(cluster)
            assert await newer.read_all(SEGMENT) == block
            assert (await newer.setup(SEGMENT)).last_event_number == 1
            await newer.close()
        await client.close()


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"TIER2_URL": "ftp://nowhere/"}, "invalid-setting"),
        ({"BIND": "nonsense"}, "invalid-setting"),
        ({"TIER2_URL": "file:///proc/nowhere"}, "directory-unusable"),
        ({"FLUSH_BITES": "1"}, "invalid-setting"),
    ],
)
async def test_wrong_settings_end_the_start_with_a_named_error(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster, setting: dict[str, str], code: str
) -> None:
    async with segment_store(tmp_path / "data", nats_server.url, **setting) as process:
        async with asyncio.timeout(START_DEADLINE_S):
            output, _ = await process.communicate()
        assert process.returncode == 1
        assert code in output.decode()
        assert "Traceback" not in output.decode()


async def test_a_taken_port_and_a_used_directory_are_named(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    async with segment_store(tmp_path / "data", nats_server.url):
        node = await cluster.node()
        bind = str(node.endpoint)
        for directory, code in (("other", "port-in-use"), ("data", "directory-in-use")):
            async with segment_store(tmp_path / directory, nats_server.url, BIND=bind) as second:
                async with asyncio.timeout(START_DEADLINE_S):
                    output, _ = await second.communicate()
                assert second.returncode == 1
                assert code in output.decode()
                assert "Traceback" not in output.decode()


async def test_watermarks_are_appended_read_back_and_truncated_over_nats(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    stream = stream_ref("scope/stream")
    stores = NatsSegmentStores(cluster.client, 1)
    cut = (MarkedSegment(segment_id(0, 0), KeyRange(0.0, 1.0), 7),)
    marks = [Watermark(1, time_ms, time_ms, cut) for time_ms in range(12)]
    async with segment_store(tmp_path / "data", nats_server.url, BIND="127.0.0.1:0"):
        await cluster.assign()
        await cluster.opened(1)
        log = WatermarkLog(stores, SystemIds())
        before, tail = await log.tail(stream, 1), await log.tail(stream, 1)
        for mark in marks:
            tail = await log.append(stream, tail, mark, 0)
        with pytest.raises(OffsetMismatch):
            await log.append(stream, before, marks[0], 0)

        with (
            patch.object(watermark_log, "READ_SIZE_BYTES", 100),
            patch.object(watermark_log, "TRIM_STEP_BYTES", 100),
        ):
            read = await log.tail(stream, 1)
            assert (read.length, read.last) == (tail.length, marks[-1])
            trimmed = await log.trim(stream, read, lambda one: one.lower_ms <= 8)
        assert (await log.tail(stream, 1)).start == trimmed.start > 0
        left = await stores.read_appends(watermark_segment(stream), trimmed.start, 1)
        assert decode_watermark(Block(left)[0]) in marks[6:9]

        await stores.delete_segment(watermark_segment(stream), Stamp(1, 9))
        with pytest.raises(OutcomeUnknown):
            await log.append(stream, read, marks[0], 0)
        with pytest.raises(StaleRequest):
            await log.append(stream, before, marks[0], 0)
        assert not (await log.tail(stream, 2)).exists
        await log.append(stream, await log.tail(stream, 2), Watermark(2, 1, 1, cut), 0)
