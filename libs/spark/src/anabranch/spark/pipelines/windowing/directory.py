"""The directory of the windows: what the next run needs of the ones before it.

windowing.json    what the windows are, as the first run was told
checkpoint/       Spark's log and state of the query: place in the stream, open windows
table/batch=<n>/  the windows that batch n has written, as Parquet
closing/          a marker, if a run has closed all windows
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from anabranch.common.errors import InvalidRequest
from anabranch.spark.pipelines.windowing.aggregates import Windowing

CLOSING_TIME = "9000-01-01T00:00:00Z"
"""Later than any event; the windows of earlier ones are complete."""
CLOSING_SCHEMA = "event_time timestamp"


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
        return any(self.closing.glob("*.json"))

    def batch(self, number: int) -> str:
        """The URL of the part of the table that one batch replaces."""
        return f"{self.table.resolve().as_uri()}/batch={number:010d}"

    def begin(self, windowing: Windowing) -> None:
        """Create the directories. Raises InvalidRequest if an earlier run had other windows."""
        self.closing.mkdir(parents=True, exist_ok=True)
        self.table.mkdir(exist_ok=True)
        path, wanted = self.root / "windowing.json", asdict(windowing)
        if not path.exists():
            _create(path, wanted)
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
        _create(self.closing / "marker.json", {"event_time": CLOSING_TIME})

    def query_id(self) -> str:
        """The query's id, which remains the same as long as the checkpoint does."""
        found = json.loads((self.checkpoint / "metadata").read_text())["id"]
        assert isinstance(found, str)
        return found


def _create(path: Path, content: Mapping[str, object]) -> None:
    """Create the file in one step, so that a run that dies leaves none or all of it."""
    hidden = path.with_name(f".{path.stem}")
    hidden.write_text(json.dumps(content) + "\n")
    hidden.rename(path)
