"""Snapshot files: the text that a user sees, kept in `tests/snapshots`.

``REWRITE_SNAPSHOTS=1`` writes them anew; the difference is then reviewed like code.
"""

import os
from pathlib import Path

SNAPSHOTS = Path(__file__).parent.parent / "snapshots"


def assert_snapshot(name: str, text: str) -> None:
    """`text` is what `tests/snapshots/<name>.txt` holds."""
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("REWRITE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"write it with REWRITE_SNAPSHOTS=1: {path.name}"
    assert text == path.read_text(), f"{path.name} differs: look at it, then REWRITE_SNAPSHOTS=1"
