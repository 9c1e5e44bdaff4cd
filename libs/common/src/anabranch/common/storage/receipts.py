"""Receipts in tier 2: objects that say, by their names alone, that another one was created.

A receipt is created after the object that it speaks of, and the one before it is deleted after
that. A crash in between leaves the newest object without a receipt, or two receipts, and both are
harmless: a reader refuses only a receipt above everything that is there (`objects.py`,
`streams.py`).
"""

from collections.abc import Iterable
from contextlib import suppress

from anabranch.common.errors import ObjectExists
from anabranch.common.storage.ports import ChunkStorage

_CONTENT = b"anabranch: the object with this number was created\n"


async def leave_receipt(storage: ChunkStorage, name: str, known: Iterable[str]) -> None:
    """Create the receipt, unless one of those that are known is newer, then delete the older ones.

    Idempotent. Raises what the storage raises.
    """
    known = set(known)
    newest = max([name, *known])
    if newest == name and name not in known:
        with suppress(ObjectExists):
            await storage.put_new(name, [_CONTENT])
    for each in sorted(known - {newest}):
        await storage.delete(each)
