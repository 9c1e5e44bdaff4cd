"""Reads and extends the manifests of an archive in its place.

A run lists manifests before snapshots: a manifest that disappears in between is one that a newer
snapshot has replaced, and is not read.
"""

from dataclasses import dataclass

from anabranch.common.errors import ObjectExists
from anabranch.spark.pipelines.archiving.files import Files
from anabranch.spark.pipelines.archiving.manifest import (
    DATA,
    MANIFESTS,
    SNAPSHOTS,
    Batch,
    Contents,
    Snapshot,
    contents_of,
    dumped,
    manifest_name,
    numbers_of,
    parsed_batch,
    parsed_snapshot,
    replaced,
    sweepable,
)


@dataclass(frozen=True, slots=True)
class Swept:
    """The number of files and manifests that a sweep deleted."""

    files: int
    manifests: int


def load(files: Files) -> tuple[Contents, Snapshot | None]:
    """The archive, and its latest snapshot. Raises CorruptManifest, FormatTooNew."""
    batches = numbers_of(files.list(MANIFESTS))
    generations = numbers_of(files.list(SNAPSHOTS))
    snapshot: Snapshot | None = None
    if generations:
        name = manifest_name(SNAPSHOTS, generations[-1])
        snapshot = parsed_snapshot(name, files.get(name))
    after = snapshot.through if snapshot is not None else -1
    names = (manifest_name(MANIFESTS, number) for number in batches if number > after)
    return contents_of(snapshot, (parsed_batch(name, files.get(name)) for name in names)), snapshot


def publish(files: Files, manifest: Batch | Snapshot) -> None:
    """Add the manifest; its files are then in the archive.

    Idempotent. Raises ObjectExists if another run has taken its number.
    """
    try:
        files.create(manifest.name, dumped(manifest))
    except ObjectExists as error:
        raise ObjectExists(
            "another run writes into the archive",
            remedy="let one run at a time archive into a place, and start this one again",
            manifest=manifest.name,
        ) from error


def sweep(files: Files, contents: Contents, snapshot: Snapshot | None) -> Swept:
    """Delete the leftovers of earlier runs, see `manifest`. Idempotent."""
    unlisted = sweepable(contents, files.list(DATA))
    old = replaced(snapshot, [*files.list(MANIFESTS), *files.list(SNAPSHOTS)])
    for name in (*unlisted, *old):
        files.delete(name)
    return Swept(len(unlisted), len(old))
