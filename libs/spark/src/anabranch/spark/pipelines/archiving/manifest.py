"""The manifest of an archive: which files are in it, and up to which cut of the stream. Pure.

    manifests/0000000007.json     batch 7: its files, and the cuts before and after it
    snapshots/0000000002.json     generation 2: all files of the batches up to `through`, which
                                  replaces their manifests and the generation before it
    data/event_date=2013-01-01/0000000007-5f3a….parquet          written by batch 7
    data/event_date=2013-01-01/g0000000002-81bc….parquet         written by a compaction

A file is in the archive exactly if a manifest or the latest snapshot lists it. Manifests and
snapshots are create-only, so of two runs that write the same batch one wins. The next batch begins
at the cut where the last one ended; nothing else records the progress, so a killed run leaves
nothing to repair.

A later run deletes unlisted files at its start, by their names: files of batches whose number is
taken, and files of compactions up to the present generation. Files of the batch that comes next may
belong to another run that is still alive, so they stay. Files with other names are foreign, and
stay too.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.common.errors import CorruptManifest, FormatTooNew

FORMAT = 1
MANIFESTS = "manifests"
SNAPSHOTS = "snapshots"
DATA = "data"
UNITS: Mapping[str, str] = {"day": "event_date", "hour": "event_hour"}
"""Unit of time of the partitions → the name of their column."""
NONE_YET = -1
_NUMBER = re.compile(rf"^(?:{MANIFESTS}|{SNAPSHOTS})/(\d{{10}})\.json$")
_WRITTEN_BY = re.compile(
    rf"{DATA}/(?:{'|'.join(UNITS.values())})=[^/]+/"
    r"(?:(g?)(\d{10})-[0-9a-f]{16}\.parquet|\.(g?)(\d{10})-[0-9a-f]{16}\.parquet\.[0-9a-f]{12})"
)
"""The names of data files, and of hidden ones that a run has not completed."""


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file. `crc_sum`: the sum of the CRC32 of its events; times in microseconds."""

    name: str
    partition: str
    """The day or hour of its events, as `2013-01-01` or `2013-01-01-05` (UTC)."""
    rows: int
    size_bytes: int
    crc_sum: int
    event_time_min_us: int
    event_time_max_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The stream of an archive, and the unit of its partitions. All its manifests agree on it."""

    stream: str
    unit: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The manifest of one batch. `before` is empty for the stream's head."""

    number: int
    origin: Origin
    before: str
    after: str
    files: tuple[File, ...]

    @property
    def name(self) -> str:
        return manifest_name(MANIFESTS, self.number)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All files of the batches up to `through`, and the cut after them."""

    generation: int
    origin: Origin
    through: int
    after: str
    files: tuple[File, ...]

    @property
    def name(self) -> str:
        return manifest_name(SNAPSHOTS, self.generation)


@dataclass(frozen=True, slots=True)
class Contents:
    """An archive as its manifests describe it; `batch` and `generation` NONE_YET: none so far."""

    origin: Origin | None = None
    batch: int = NONE_YET
    generation: int = NONE_YET
    after: str = ""
    files: Mapping[str, File] = field(default_factory=dict)
    """By name."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def crc_sum(self) -> int:
        return sum(file.crc_sum for file in self.files.values())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


def manifest_name(directory: str, number: int) -> str:
    """The name of a manifest or a snapshot."""
    return f"{directory}/{number:010d}.json"


def number_of(name: str) -> int | None:
    """The number in a name; None for another name, such as that of an unfinished object."""
    found = _NUMBER.match(name)
    return int(found[1]) if found else None


def numbers_of(names: Iterable[str]) -> list[int]:
    """The numbers of manifests or snapshots, sorted."""
    return sorted(number for name in names if (number := number_of(name)) is not None)


def contents_of(snapshot: Snapshot | None, batches: Iterable[Batch]) -> Contents:
    """The archive of its latest snapshot and the batches after it, in their order.

    Raises CorruptManifest if a batch is missing, or does not begin where the one before ended.
    """
    found = Contents()
    if snapshot is not None:
        found = Contents(
            origin=snapshot.origin,
            batch=snapshot.through,
            generation=snapshot.generation,
            after=snapshot.after,
            files={file.name: file for file in snapshot.files},
        )
    for batch in batches:
        found = with_batch(found, batch)
    return found


def with_batch(contents: Contents, batch: Batch) -> Contents:
    """The archive after one more batch. Raises CorruptManifest if it is not the next one."""
    expected = (contents.batch + 1, contents.after, contents.origin or batch.origin)
    if (batch.number, batch.before, batch.origin) != expected:
        raise CorruptManifest(
            "a manifest of the archive is missing or does not continue the one before",
            remedy="restore the archive's manifests, or archive into an empty place",
            batch=batch.number,
            expected=expected[0],
        )
    return Contents(
        origin=batch.origin,
        batch=batch.number,
        generation=contents.generation,
        after=batch.after,
        files={**contents.files, **{file.name: file for file in batch.files}},
    )


def sweepable(contents: Contents, names: Iterable[str]) -> list[str]:
    """Those files of the names below `data/` that no list names or can name in future."""
    return [
        name
        for name in names
        if name not in contents.files and (found := _WRITTEN_BY.fullmatch(name)) is not None
        if int(found[2] or found[4])
        <= (contents.generation if found[1] or found[3] else contents.batch)
    ]


def replaced(snapshot: Snapshot | None, names: Collection[str]) -> list[str]:
    """Those manifests and snapshots of the names that the latest snapshot replaces."""
    if snapshot is None:
        return []
    last = {MANIFESTS: snapshot.through, SNAPSHOTS: snapshot.generation - 1}
    return [
        name
        for name in names
        if (number := number_of(name)) is not None and number <= last[name.partition("/")[0]]
    ]


def dumped(manifest: Batch | Snapshot) -> bytes:
    """The manifest as JSON, for people too: the sums come first."""
    totals = {
        "rows": sum(file.rows for file in manifest.files),
        "crc_sum": sum(file.crc_sum for file in manifest.files),
    }
    return json.dumps({"format": FORMAT, **totals, **asdict(manifest)}, indent=1).encode()


def parsed_batch(name: str, data: bytes) -> Batch:
    """Raises CorruptManifest, FormatTooNew."""
    return Batch(**_fields(name, data, ("number", "before", "after")))


def parsed_snapshot(name: str, data: bytes) -> Snapshot:
    """Raises CorruptManifest, FormatTooNew."""
    return Snapshot(**_fields(name, data, ("generation", "through", "after")))


def _fields(name: str, data: bytes, keys: Sequence[str]) -> dict[str, Any]:
    try:
        found = json.loads(data)
        if found["format"] > FORMAT:
            raise FormatTooNew(
                "a newer version of this program wrote the archive",
                remedy="upgrade anabranch-spark", name=name, format=found["format"],
            )  # fmt: skip
        origin = Origin(**found["origin"])
        files = tuple(File(**file) for file in found["files"])
        rows, crc_sum = (sum(getattr(file, sum_) for file in files) for sum_ in ("rows", "crc_sum"))
        if (found["rows"], found["crc_sum"]) != (rows, crc_sum):
            raise ValueError("the sums differ from those of the files")
        return {**{key: found[key] for key in keys}, "origin": origin, "files": files}
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptManifest(
            "a manifest of the archive cannot be read",
            remedy="restore it from a copy of the archive", name=name, cause=str(error),
        ) from error  # fmt: skip
