"""Receipts in tier 2: objects whose names alone record that another object was created.

A receipt is created after its object, and the previous receipt is deleted after that. A crash in
between leaves the newest object without a receipt, or two receipts. Both are harmless: a reader
refuses only a receipt above all existing objects (`objects.py`, `streams.py`).
"""

from collections.abc import Iterable
from contextlib import suppress

from anabranch.common.errors import ObjectExists
from anabranch.common.storage.ports import ChunkStorage

_CONTENT = b"anabranch: the object with this number was created\n"


async def leave_receipt(storage: ChunkStorage, name: str, known: Iterable[str]) -> None:
    """Create the receipt, unless a known one is newer, then delete the older ones.

    Idempotent. Raises the storage's errors.
    """
    known = set(known)
    newest = max([name, *known])
    if newest == name and name not in known:
        with suppress(ObjectExists):
            await storage.put_new(name, [_CONTENT])
    for each in sorted(known - {newest}):
        await storage.delete(each)
