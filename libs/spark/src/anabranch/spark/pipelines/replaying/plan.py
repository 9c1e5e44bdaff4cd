"""The plan of a replay: which files make which transaction. Pure.

A replay is known by its application, `replay-` and a digest of its source, its target and its name.
Its plan is written beside the source before the first event is, and is never changed: version n of
the application is chunk n of the plan, also for a run that continues it days later. Files that come
into the source after that belong to a replay with another name.

Chunks of an archive are whole days (or hours), because files of different days do not overlap in
time: so events of one key are in order of event time across chunks, too.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from anabranch.common.errors import CorruptManifest, InvalidRequest
from anabranch.spark.pipelines.archiving.manifest import File

FORMAT = 1
PLANS = "_replays"


@dataclass(frozen=True, slots=True)
class Replay:
    """The identity of a replay. `source` is a URL, `target` a stream."""

    source: str
    target: str
    name: str = ""

    @property
    def application(self) -> str:
        """The application of the keyed transactions."""
        parts = json.dumps([self.source, self.target, self.name]).encode()
        return f"replay-{hashlib.sha256(parts).hexdigest()[:32]}"

    @property
    def plan_name(self) -> str:
        """The name of the plan in the source's place."""
        return f"{PLANS}/{self.application}.json"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The files that one transaction writes."""

    files: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The chunks in their order; `archive`: whether they are files of an archive."""

    replay: Replay
    archive: bool
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Sized:
    """A file with the group that must not be divided: its day in an archive, else itself."""

    name: str
    group: str
    rows: int
    size_bytes: int


def of_archive(files: Iterable[File]) -> list[Sized]:
    """The files of an archive, in order of time."""
    found = [Sized(each.name, each.partition, each.rows, each.size_bytes) for each in files]
    return sorted(found, key=lambda file: (file.group, file.name))


def chunks_of(files: Sequence[Sized], target_bytes: int) -> tuple[Chunk, ...]:
    """Chunks of about `target_bytes`, which divide no group."""
    chunks: list[list[Sized]] = []
    size = target_bytes
    for _, group in groupby(files, key=lambda file: file.group):
        members = list(group)
        more = sum(file.size_bytes for file in members)
        if size + more > target_bytes:
            chunks.append([])
            size = 0
        chunks[-1] += members
        size += more
    return tuple(
        Chunk(tuple(file.name for file in chunk), sum(file.rows for file in chunk))
        for chunk in chunks
    )


def check_chosen(plan: Plan, replay: Replay, *, archive: bool) -> None:
    """Raises CorruptManifest if the plan is of another replay, InvalidRequest if the source has
    become an archive, or is one no more."""
    if plan.replay != replay:
        raise CorruptManifest(
            "the plan is that of another replay",
            remedy="delete it if it was copied there", name=replay.plan_name,
        )  # fmt: skip
    if plan.archive != archive:
        raise InvalidRequest(
            "the source is of another kind than when the replay began",
            remedy="restore its files, or begin another replay with --name",
        )


def missing(plan: Plan, done: int, names: Iterable[str]) -> list[str]:
    """The files of the chunks from `done` on that the source no longer has."""
    present = set(names)
    return [name for chunk in plan.chunks[done:] for name in chunk.files if name not in present]


def pause_s(rate: float | None, events: int, elapsed_s: float) -> float:
    """How long to wait after so many events, so that no more than `rate` come per second."""
    return max(0.0, events / rate - elapsed_s) if rate else 0.0


def dumped(plan: Plan) -> bytes:
    """The plan as JSON."""
    return json.dumps({"format": FORMAT, **asdict(plan)}, indent=1).encode()


def parsed(data: bytes) -> Plan:
    """Raises CorruptManifest."""
    try:
        found = json.loads(data)
        if found["format"] != FORMAT:
            raise ValueError("another format")
        chunks = tuple(Chunk(tuple(one["files"]), one["rows"]) for one in found["chunks"])
        return Plan(Replay(**found["replay"]), found["archive"], chunks)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptManifest(
            "the plan of a replay cannot be read",
            remedy="restore it from a copy of the source", cause=str(error),
        ) from error  # fmt: skip
