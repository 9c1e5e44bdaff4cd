"""The commands `anabranch tier2 …`: inspect tier 2 without a running cluster.

They read and never write; `verify` reads everything.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, Shown, run_async
from anabranch.cli.transfer_progress import NO_TERMINAL, TransferProgress, shows_progress
from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
from anabranch.common.errors import AnabranchError, Corrupt
from anabranch.common.model.cluster import Abandonment
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.storage.audit import (
    ContainerCatalog,
    SegmentAudit,
    audit_container,
    containers_in,
    read_catalog,
)
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.streams import audit_streams, list_streams
from anabranch.common.tier2.state import SegmentState

CALL_S_MAX = 60.0
CONTAINER_COLUMNS = (
    "container", "manifest", "epoch", "applied", "segments", "chunks", "bytes", "log", "abandoned",
)  # fmt: skip
SEGMENT_COLUMNS = ("segment", "container", "start", "length", "events", "state", "chunks")
STREAM_COLUMNS = ("stream", "state", "revision", "epoch", "segments")
PIECE_COLUMNS = ("segment", "start", "offset", "length", "events")


@Parameter(name="*")
@dataclass(frozen=True)
class Place(Shown):
    """Options of every command that inspects tier 2."""

    url: Annotated[str | None, Parameter(env_var="ANABRANCH_TIER2_URL")] = None
    "Where tier 2 is, e.g. file:///var/lib/anabranch/tier2."
    data_dir: Path | None = None
    "Data directory of a cluster on this machine, without --url. [env: ANABRANCH_DATA_DIR]"

    @property
    def chunks_url(self) -> str:
        """The URL of tier 2, which by default is in the data directory."""
        data_dir = Connection(data_dir=self.data_dir).target.data_dir
        return self.url or (data_dir / "segstore" / "tier2").resolve().as_uri()


_HERE = Place()


def _run(place: Place, command: Callable[[ChunkStorage, Output], Awaitable[int]]) -> int:

    async def perform() -> int:
        storage = await open_chunk_storage_read_only(place.chunks_url, limit_s=CALL_S_MAX)
        return await command(storage, Output(place.form))

    return run_async(perform())


def streams(*, place: Place = _HERE) -> int:
    """List the streams that controllers exported to tier 2."""

    async def perform(storage: ChunkStorage, output: Output) -> int:
        found = [stream async for stream in list_streams(storage)]
        rows = [
            (str(one.ref), one.state.value, one.revision, one.epochs[-1].stream_epoch)
            for one in found
            if one.epochs
        ]
        counts = [len(one.epochs[-1].segments) for one in found if one.epochs]
        table = [(*row, count) for row, count in zip(rows, counts, strict=True)]
        _print(output, STREAM_COLUMNS, table)
        return 0

    return _run(place, perform)


def containers(*, place: Place = _HERE) -> int:
    """List the containers: newest manifest, container epoch, and size."""

    async def perform(storage: ChunkStorage, output: Output) -> int:
        rows = [
            _container_row(number, await read_catalog(storage, number))
            for number in await containers_in(storage)
        ]
        _print(output, CONTAINER_COLUMNS, rows)
        return 0

    return _run(place, perform)


def segments(*, container: int | None = None, place: Place = _HERE) -> int:
    """List the segments, of all containers or of one.

    Parameters
    ----------
    container
        Only the segments of this container.
    """

    async def perform(storage: ChunkStorage, output: Output) -> int:
        rows: list[tuple[object, ...]] = []
        for number in await _chosen(storage, container):
            found = await read_catalog(storage, number)
            rows += [_segment_row(number, found, name) for name in sorted(found.catalog.segments)]
        _print(output, SEGMENT_COLUMNS, rows)
        return 0

    return _run(place, perform)


def chunk(name: str, *, place: Place = _HERE) -> int:
    """Show a chunk's contents, by its footer.

    Parameters
    ----------
    name
        The chunk's name, e.g. c3/0000000007-0000000012; a directory adds .obj to it.
    """

    async def perform(storage: ChunkStorage, output: Output) -> int:
        footer = await ChunkReader(storage).footer(name.removesuffix(".obj"))
        rows = [
            (
                piece.segment_name, piece.start, piece.offset, piece.length,
                piece.entries[-1].event_count if piece.entries else 0,
            )
            for piece in footer.pieces
        ]  # fmt: skip
        _print(output, PIECE_COLUMNS, rows)
        return 0

    return _run(place, perform)


def verify(*, container: int | None = None, place: Place = _HERE) -> int:
    """Read all of tier 2, or one container's part, and check every checksum.

    Ends with 1, and a list, if an object is damaged or missing, including the newest ones.

    Parameters
    ----------
    container
        Read only the objects of this container.
    """

    async def perform(storage: ChunkStorage, output: Output) -> int:
        tally = _Tally()
        numbers = await _chosen(storage, container)
        stream = sys.stderr if shows_progress(sys.stderr, NO_TERMINAL, os.environ) else None
        total = await _total(storage, numbers) if stream is not None else None
        with closing(TransferProgress(stream, SystemClock(), total)) as progress:
            line = _Line(progress)
            for number in numbers:
                try:
                    found = await read_catalog(storage, number)
                except AnabranchError as error:
                    tally.fault(output, f"container {number}", f"{error.code}: {error}")
                    continue
                async for audit in audit_container(storage, number, found, line.add):
                    tally.add(output, audit)
        if container is None:
            async for prefix, told in audit_streams(storage):
                if isinstance(told, Corrupt):
                    tally.fault(output, f"streams {prefix}", f"{told.code}: {told}")
        output.done(tally.text(), tally.record())
        return 1 if tally.faults else 0

    return _run(place, perform)


@dataclass
class _Tally:
    """The running totals of `verify`."""

    segments: int = 0
    blocks: int = 0
    events: int = 0
    size_bytes: int = 0
    faults: int = 0

    def add(self, output: Output, audit: SegmentAudit) -> None:
        self.segments += 1
        self.blocks += audit.blocks
        self.events += audit.events
        self.size_bytes += audit.size_bytes
        for fault in audit.faults:
            self.fault(output, audit.segment.name, fault)

    def fault(self, output: Output, what: str, fault: str) -> None:
        self.faults += 1
        output.done(f"DAMAGED {what}: {fault}", {"damaged": what, "fault": fault})

    def record(self) -> dict[str, object]:
        return {
            "segments": self.segments,
            "blocks": self.blocks,
            "events": self.events,
            "bytes": self.size_bytes,
            "faults": self.faults,
        }

    def text(self) -> str:
        read = (
            f"read {counted(self.segments, 'segment')}, {counted(self.blocks, 'block')}, "
            f"{counted(self.events, 'event')}, {self.size_bytes:,} bytes: "
        )
        return read + (counted(self.faults, "fault") if self.faults else "no damage found")


@dataclass
class _Line:
    """The progress of `verify`, which reads each byte of tier 2 once."""

    progress: TransferProgress
    events: int = 0
    size_bytes: int = 0

    def add(self, events: int, size_bytes: int) -> None:
        self.events += events
        self.size_bytes += size_bytes
        self.progress.show(self.events, self.size_bytes, self.size_bytes)


async def _total(storage: ChunkStorage, containers: Sequence[int]) -> int:
    """The bytes of these containers in tier 2. Those that cannot be read count nothing.

    The audit reads each catalog again, right before the objects, because old ones are deleted.
    """
    total = 0
    for number in containers:
        with suppress(AnabranchError):
            total += _size_bytes(await read_catalog(storage, number))
    return total


async def _chosen(storage: ChunkStorage, container: int | None) -> list[int]:
    return await containers_in(storage) if container is None else [container]


def _size_bytes(found: ContainerCatalog) -> int:
    """The bytes of all extents, which `audit_container` reads."""
    return sum(extent.ref.length for each in found.catalog.extents.values() for extent in each)


def _container_row(number: int, found: ContainerCatalog) -> tuple[object, ...]:
    manifest, catalog = found.manifest, found.catalog
    refs = [extent.ref for extents in catalog.extents.values() for extent in extents]
    return (
        number,
        manifest.number,
        manifest.container_epoch,
        manifest.applied_sequence,
        len(catalog.segments),
        len({ref.name for ref in refs}),
        _size_bytes(found),
        "closed" if manifest.log.closed else manifest.log.log_id,
        _abandoned(manifest.abandoned),
    )


def _abandoned(found: Abandonment | None) -> str:
    return "" if found is None else f"{found.log_id} after {found.applied_sequence}"


def _segment_row(number: int, found: ContainerCatalog, name: str) -> tuple[object, ...]:
    state = found.catalog.segments[name]
    extents = found.catalog.extents.get(state.number, ())
    names = {extent.ref.name for extent in extents}
    return (
        name, number, state.start, state.length, state.event_count, _state(state), len(names),
    )  # fmt: skip


def _state(state: SegmentState) -> str:
    return "sealed" if state.sealed else "open"


def _print(output: Output, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    output.rows(
        columns,
        [[str(value) for value in row] for row in rows],
        [dict(zip(columns, row, strict=True)) for row in rows],
    )
