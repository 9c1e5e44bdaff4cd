"""Golden files freeze the stored and transmitted formats.

A format may only change together with its version number; then the golden file is written anew
with ``REWRITE_GOLDEN=1`` and the old one stays, under its old name, as a test of upcasting.
"""

import os
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden"
_LINE_SIZE_BYTES = 32


def assert_golden(name: str, data: bytes) -> None:
    """`data` equals the frozen bytes of `tests/golden/<name>.hex`."""
    path = GOLDEN / f"{name}.hex"
    if os.environ.get("REWRITE_GOLDEN") == "1":
        lines = [
            data[at : at + _LINE_SIZE_BYTES].hex(" ", 4)
            for at in range(0, len(data), _LINE_SIZE_BYTES)
        ]
        path.write_text("\n".join(lines) + "\n")
    assert data.hex() == read_golden(name).hex()


def assert_golden_text(name: str, text: str) -> None:
    """`text` equals that of `tests/golden/<name>`, which people read; rewritten as the others."""
    path = GOLDEN / name
    if os.environ.get("REWRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def read_golden(name: str) -> bytes:
    """The frozen bytes of `tests/golden/<name>.hex`."""
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
