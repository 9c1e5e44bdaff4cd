"""The directory of the windows: what the next run needs of the ones before it.

windowing.json    what the windows are, as the first run was told
checkpoint/       Spark's log and state of the query: place in the stream, open windows
table/batch=<n>/  the windows that batch n has written, as Parquet
manifests/<n>.json  the files of that part
closing/marker.json  a marker, if a run has closed all windows

A file is in the table exactly if a manifest lists it, so that stray files change nothing.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from anabranch.common.errors import CorruptManifest, InvalidRequest
from anabranch.spark.pipelines.windowing.aggregates import Windowing

CLOSING_TIME = "9000-01-01T00:00:00Z"
"""Later than any event; the windows of earlier ones are complete."""
CLOSING_SCHEMA = "event_time timestamp"
MARKER = "marker.json"
_MANIFEST = re.compile(r"\d{10}\.json")


@dataclass(frozen=True, slots=True)
class Directory:
    """The paths below `root`."""

    root: Path

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def table(self) -> Path:
        return self.root / "table"

    @property
    def closing(self) -> Path:
        return self.root / "closing"

    @property
    def is_closed(self) -> bool:
        """Whether a run has begun to close all windows."""
        return (self.closing / MARKER).exists()

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    def batch(self, number: int) -> str:
        """The URL of the part of the table that one batch replaces."""
        return f"{self.table.resolve().as_uri()}/{_part(number)}"

    def forget(self, number: int) -> None:
        """Take a part out of the table, before its batch replaces the files. Idempotent."""
        self._manifest(number).unlink(missing_ok=True)

    def record(self, number: int) -> None:
        """Let the files of a part count, which Spark has written alone. Idempotent."""
        written = (self.table / _part(number)).glob("part-*.parquet")
        names = sorted(path.relative_to(self.table).as_posix() for path in written)
        _write(self._manifest(number), {"files": names})

    def files(self) -> list[Path]:
        """The files of the table. Raises CorruptManifest."""
        found = sorted(
            path for path in self.manifests.iterdir() if _MANIFEST.fullmatch(path.name) is not None
        )
        return [self.table / name for path in found for name in _names_in(path)]

    def _manifest(self, number: int) -> Path:
        return self.manifests / f"{number:010d}.json"

    def begin(self, windowing: Windowing) -> None:
        """Create the directories.

        Raises InvalidRequest if an earlier run had other windows, or was of a release that wrote no
        manifests.
        """
        path, wanted = self.root / "windowing.json", asdict(windowing)
        if path.exists() and not self.manifests.exists():
            raise InvalidRequest(
                "an earlier release made the directory, and it has no manifests",
                remedy="name another --out",
                directory=str(self.root),
            )
        self.closing.mkdir(parents=True, exist_ok=True)
        self.table.mkdir(exist_ok=True)
        self.manifests.mkdir(exist_ok=True)
        if not path.exists():
            _write(path, wanted)
            return
        before = json.loads(path.read_text())
        changed = sorted(name for name in wanted if before.get(name) != wanted[name])
        if changed:
            raise InvalidRequest(
                "the directory holds other windows",
                remedy="name another --out, or the arguments of the first run",
                **{name: before.get(name) for name in changed},
            )

    def close(self) -> None:
        """Add the marker that lets the next batch write all open windows."""
        _write(self.closing / MARKER, {"event_time": CLOSING_TIME})

    def query_id(self) -> str:
        """The query's id, which remains the same as long as the checkpoint does."""
        found = json.loads((self.checkpoint / "metadata").read_text())["id"]
        assert isinstance(found, str)
        return found


def _part(number: int) -> str:
    return f"batch={number:010d}"


def _names_in(manifest: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads(manifest.read_text())["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptManifest(
            "a manifest of the windows cannot be read",
            remedy="restore it from a copy of the directory", name=str(manifest), cause=str(error),
        ) from error  # fmt: skip


def _write(path: Path, content: Mapping[str, object]) -> None:
    """Replace the file by the content as a line of JSON, whole or not at all."""
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_text(json.dumps(content) + "\n")
    hidden.rename(path)
