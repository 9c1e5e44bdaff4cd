"""The audit finds each planted damage by name, and calls a healthy stream healthy."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.cli.demo.flights import flights, table_path
from anabranch.cli.demo.source import Row
from anabranch.client import Client, EventWriter, Transaction
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import parse_segment_name, stream_ref
from anabranch.common.tier2.manifest import SegmentChange
from anabranch.common.tier2.streams import stream_object_name
from anabranch.spark.pipelines.audit import PIPELINE, Arguments, run
from anabranch.spark.pipelines.auditing.findings import Finding
from anabranch.spark.pipelines.auditing.report import AuditReport, summary
from anabranch.spark.pipelines.frame import as_json, as_text
from anabranch.spark.pipelines.progress import Progress
from kit.cluster_thread import ClusterThread
from kit.tier2_made import HIGH, LOW, Made, MadeTierTwo, block, blocks, cut_at, flipped, keys_in

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
PART = 2000
FILL_S_MAX = 600.0
LOWS, HIGHS = blocks(LOW, 6), blocks(HIGH, 6)
SIZE = len(LOWS[0])
OTHER = b"another writer.."
Plant = Callable[[MadeTierTwo, str], None]


def name_of(stream: str, number: int = 0, epoch: int = 0) -> str:
    return f"{stream}/{number}.#epoch.{epoch}"


def add(made: MadeTierTwo, stream: str, *low: bytes) -> None:
    """A stream of two segments; the first has these blocks in two chunks."""
    held = list(low or LOWS)
    extents = [part for part in (held[:4], held[4:]) if part]
    made.add_stream(stream, [Made(0, extents, keys=LOW), Made(1, [HIGHS], keys=HIGH)])


def changed(how: Callable[[bytes], bytes]) -> Plant:
    """Change the first chunk."""

    def plant(made: MadeTierTwo, stream: str) -> None:
        add(made, stream)
        made.change(made.chunks[name_of(stream), 0], how)

    return plant


def missing_chunk(made: MadeTierTwo, stream: str) -> None:
    add(made, stream)
    made.drop(made.chunks[name_of(stream), 0])


def with_blocks(*low: bytes) -> Plant:
    return lambda made, stream: add(made, stream, *low)


def present(*ranges: KeyRange) -> Plant:
    """The present epoch has segments of these ranges."""

    def plant(made: MadeTierTwo, stream: str) -> None:
        made.add_stream(stream, [Made(at, keys=keys) for at, keys in enumerate(ranges)])

    return plant


def earlier_hole(made: MadeTierTwo, stream: str) -> None:
    """Epoch 1 lacks the keys of the upper half."""
    made.add_stream(
        stream,
        [
            Made(0, keys=LOW, sealed_epoch=2),
            Made(1, keys=HIGH, sealed_epoch=1),
            Made(2, keys=KeyRange(0.0, 1.0), epoch=2),
        ],
    )


def sealed(size_more: int, *, is_sealed: bool) -> Plant:
    def plant(made: MadeTierTwo, stream: str) -> None:
        old = Made(0, [LOWS], keys=LOW, sealed_epoch=1, is_sealed_in_catalog=is_sealed)
        old = replace(old, sealed_size=old.length + size_more)
        made.add_stream(stream, [old, Made(1, keys=HIGH), Made(2, keys=LOW, epoch=1)])

    return plant


def copied_block(made: MadeTierTwo, stream: str) -> None:
    """The successor has a block of its predecessor."""
    made.add_stream(
        stream,
        [
            Made(0, [[LOWS[0]]], keys=LOW, sealed_epoch=1),
            Made(1, [HIGHS], keys=HIGH),
            Made(2, [[LOWS[0]]], keys=LOW, epoch=1),
        ],
    )


def merge_inside_a_block(made: MadeTierTwo, stream: str) -> None:
    add(made, stream)
    source = f"{name_of(stream)}#transaction.{'a' * 32}"
    made.add_merged(source, name_of(stream), SIZE, SIZE + 7)


def merge_beyond_the_end(made: MadeTierTwo, stream: str) -> None:
    add(made, stream)
    source = f"{name_of(stream)}#transaction.{'b' * 32}"
    made.add_merged(source, name_of(stream), 5 * SIZE, 2 * SIZE)


def lost_events(made: MadeTierTwo, stream: str) -> None:
    made.add_stream(stream, [Made(0, [[block(1, ["a"])]], event_count=2)])


@dataclass(frozen=True)
class Planted:
    """A damage, the check that must find it, the place, and a part of the text."""

    name: str
    plant: Plant
    check: str
    offset: int | None
    text: str

    @property
    def stream(self) -> str:
        return f"plant/{self.name}"


GAP = block(7, keys_in(LOW, 3))
STRAY = block(4, [*keys_in(LOW, 2), keys_in(HIGH, 1)[0]])
PLANTED = (
    Planted("payload", changed(flipped(SIZE + 140)), "blocks", SIZE, "checksum does not match"),
    Planted("header", changed(flipped(2 * SIZE)), "blocks", 2 * SIZE, "no block starts here"),
    Planted("size", changed(flipped(SIZE + 12)), "blocks", SIZE, "block"),
    Planted("missing", missing_chunk, "blocks", 0, "chunk that is in use is missing"),
    Planted("truncated", changed(cut_at(SIZE + 9)), "blocks", SIZE, "truncated"),
    Planted("swapped", changed(lambda b: LOWS[5] + b[SIZE:]), "blocks", 0, "checksum of a chunk"),
    Planted("before", with_blocks(flipped(-1)(LOWS[0])), "blocks", 0, "checksum does not match"),
    Planted("bytes", with_blocks(b"no blocks at all"), "blocks", 0, "header is truncated"),
    Planted("twice", with_blocks(LOWS[0], LOWS[0], LOWS[1]), "duplicates", SIZE, "events 1 to 3"),
    Planted("gap", with_blocks(LOWS[0], GAP), "numbers", SIZE, "events 4 to 6"),
    Planted("late", with_blocks(GAP), "numbers", 0, "events 1 to 6"),
    Planted("key", with_blocks(LOWS[0], STRAY), "keys", SIZE, "1 of 3 events"),
    Planted("hole", present(KeyRange(0, 0.25), HIGH), "epochs", None, "keys from 0.25 to 0.5"),
    Planted("overlap", present(KeyRange(0, 0.75), HIGH), "epochs", None, "keys from 0.5 to 0.75"),
    Planted("earlier-hole", earlier_hole, "epochs", None, "epoch 1: no segment takes the keys"),
    Planted("short", sealed(100, is_sealed=True), "sizes", None, "it was sealed with"),
    Planted("copied", copied_block, "duplicates", 0, "the block is also at 0 of plant/copied/0"),
    Planted("torn-merge", merge_inside_a_block, "transactions", 2 * SIZE + 7, "ends inside"),
    Planted("long-merge", merge_beyond_the_end, "transactions", 5 * SIZE, "beyond the end"),
    Planted("uncounted", lost_events, "counts", None, "hold 1 events, and its catalog has 2"),
    Planted("wrong-length", with_blocks(*LOWS[:4]), "blocks", 0, "checksum of a chunk's piece"),
)  # fmt: skip


def shortened(change: SegmentChange) -> SegmentChange:
    """The manifest's entry of the stream `wrong-length` names fewer bytes than its chunk has."""
    if change.state.name != name_of("plant/wrong-length"):
        return change
    (extent,) = change.added
    less = replace(extent, ref=replace(extent.ref, length=3 * SIZE))
    return replace(change, state=replace(change.state, length=3 * SIZE), added=(less,))


def audited(session: SparkSession, url: str, *streams: str, out: Path | None = None) -> AuditReport:
    return run(session, Arguments(tier2=url, streams=streams, out=out), Progress(None))


def findings(report: AuditReport) -> list[Finding]:
    return [each for check in report.checks for each in check.findings]


@pytest.fixture(scope="module")
def planted(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditReport:
    """One audit of all damaged streams, and of a healthy one among them."""
    made = MadeTierTwo()
    add(made, "plant/healthy")
    for each in PLANTED:
        each.plant(made, each.stream)
    directory = tmp_path_factory.mktemp("planted")
    return audited(session, made.write_to(directory / "tier2", made.manifest(shortened)))


@pytest.mark.parametrize("each", PLANTED, ids=lambda each: each.name)
def test_each_planted_damage_is_found_by_name_at_its_place(
    planted: AuditReport, each: Planted
) -> None:
    found = [one for one in findings(planted) if one.stream == each.stream and one.is_damage]
    assert [one for one in found if one.check == each.check and each.text in one.text]
    assert [one.offset for one in found if one.check == each.check] == [each.offset]


def test_nothing_is_found_in_a_healthy_stream_beside_them(planted: AuditReport) -> None:
    assert [each for each in findings(planted) if each.stream == "plant/healthy"] == []
    assert not planted.healthy


def test_a_damage_is_not_found_again_as_the_gap_that_it_leaves(planted: AuditReport) -> None:
    for name in ("payload", "header", "size", "missing", "truncated"):
        found = [each for each in findings(planted) if each.stream == f"plant/{name}"]
        assert {each.check for each in found} == {"blocks"}


def test_the_report_says_what_to_do_and_tells_the_frame_of_damage(
    session: SparkSession, tmp_path: Path
) -> None:
    made = MadeTierTwo()
    for each in PLANTED[:2]:
        each.plant(made, each.stream)
    report = audited(session, made.write_to(tmp_path / "tier2"), out=tmp_path)
    text = as_text(PIPELINE, report)
    assert "damaged     blocks" in text
    assert f"{name_of('plant/payload')} at {SIZE}: a block's checksum does not match" in text
    assert "remedy: restore the object that the finding names" in text
    assert text.endswith("the streams are damaged\n")
    assert PIPELINE.has_findings(report)
    told = json.loads(as_json(report))
    assert told["healthy"] is False
    assert [Path(plot).is_file() for plot in told["plots"]] == [True, True]


def test_what_is_not_flushed_yet_is_a_notice(session: SparkSession, tmp_path: Path) -> None:
    made = MadeTierTwo()
    sealed(100, is_sealed=False)(made, "plant/unflushed")
    source = f"{name_of('plant/unflushed', 1)}#transaction.{'c' * 32}"
    made.add_segment(source, Made(0, [[LOWS[0]]]))
    report = audited(session, made.write_to(tmp_path / "tier2"))
    assert report.healthy
    assert {check.name for check in report.checks if check.verdict == "incomplete"} == {
        "sizes", "transactions",
    }  # fmt: skip


def test_unreadable_descriptions_and_catalogs_are_found_and_the_rest_is_audited(
    session: SparkSession, tmp_path: Path
) -> None:
    made = MadeTierTwo()
    add(made, "plant/one")
    add(made, "plant/two")
    made.change(stream_object_name(stream_ref("plant/two"), 3), flipped(30))
    report = audited(session, made.write_to(tmp_path / "description"))
    (found,) = findings(report)
    assert (found.check, report.events) == ("descriptions", 36)
    report = audited(session, made.write_to(tmp_path / "manifest", flipped(30)(made.manifest())))
    assert {each.check for each in findings(report)} == {"descriptions"}
    assert {each.segment for each in findings(report)} == {
        "", name_of("plant/one"), name_of("plant/one", 1),
    }  # fmt: skip


def test_an_empty_tier_two_is_healthy(session: SparkSession, tmp_path: Path) -> None:
    made = MadeTierTwo()
    made.add_stream("plant/empty", [Made(0, is_flushed=False)])
    report = audited(session, made.write_to(tmp_path / "tier2"), out=tmp_path)
    assert (report.healthy, report.events, report.plots) == (True, 0, ())


async def fill(client: Client) -> int:
    """A stream of a year's flights with a scale, a truncation, and transactions before and after
    the scale; returns the number of flights."""
    rows = list(flights(table_path()))
    third = len(rows) // 3
    stream = "audit/flights"
    await client.scopes.create("audit")
    await client.streams.create(stream, segments=2)
    async with client.writer(stream) as writer:
        await put(writer, rows[:third])
        old = await client.transactions(stream).begin()
        async with old:
            await put(old, rows[third : third + PART])
            await client.streams.split_segment(stream, 0)
            await put(writer, rows[third + PART : 2 * third])
            await old.commit()
        async with writer.transaction() as new:
            await put(new, rows[2 * third : 2 * third + PART])
        await put(writer, rows[2 * third + PART :])
    async with client.reader(stream, until_tail=True) as reader:
        for _ in range(PART):
            await anext(reader)
        positions = reader.positions()
        cut: dict[int, int] = {
            parse_segment_name(name)[1]: at.offset for name, at in positions.items()
        }
    await client.streams.truncate(stream, cut)
    await client.cluster.flush_to_tier2()
    return len(rows)


async def put(writer: EventWriter | Transaction, rows: Sequence[Row]) -> None:
    """Write the flights, with a flush per thousand."""
    for start in range(0, len(rows), 1000):
        for flight in rows[start : start + 1000]:
            writer.write(flight.event, flight.key, flight.timestamp_ms)
        await writer.flush()


def test_a_year_of_flights_with_scales_truncation_and_transactions_is_healthy(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    flights_of_year = running.run(fill, FILL_S_MAX)
    report = audited(session, running.tier2, "audit/flights", out=tmp_path)
    assert report.healthy, summary(report)
    assert flights_of_year - PART <= report.events <= flights_of_year
    by_name = {check.name: check for check in report.checks}
    assert all(check.verdict == "ok" for check in report.checks), summary(report)
    assert by_name["transactions"].examined > 0
    assert by_name["sizes"].examined > 0
    assert by_name["epochs"].examined > 2
    assert 0 < by_name["keys"].examined <= report.events, "some flights have no key"
    assert [Path(plot).is_file() for plot in report.plots] == [True]
