"""The options of commands for entries of tables: keys, values and times to live."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.commands.amounts import time_ms
from anabranch.cli.commands.input_file import chunks_of, opened
from anabranch.cli.entries.keys import EntryKey, key_bytes
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.table import VALUE_SIZE_BYTES_MAX

NEVER = "0"


@Parameter(name="*")
@dataclass(frozen=True)
class KeyOptions:
    """How keys are given."""

    secondary_key: str | None = None
    "The secondary key, in a table that has them; by default the empty one."
    base64_keys: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "All keys on the command line are base64."

    def key(self, text: str) -> EntryKey:
        """The key. Raises InvalidKey."""
        second = self.secondary_key
        return EntryKey(self.bytes_of(text), None if second is None else self.bytes_of(second))

    def bytes_of(self, text: str) -> bytes:
        """The bytes of a part of a key. Raises InvalidKey."""
        return key_bytes(text, in_base64=self.base64_keys)


@Parameter(name="*")
@dataclass(frozen=True)
class ValueOptions:
    """Where a value comes from, and how long the entry lives."""

    file: Path | None = None
    "Take the value from this file, byte by byte; without VALUE and --file, from standard input."
    ttl: str | None = None
    "How long the entry lives, e.g. 12h, 7d; 0 until it is removed; by default the table's time."

    @property
    def ttl_ms(self) -> int | None:
        """The time to live; None: the table's. Raises InvalidRequest."""
        return ttl_ms(self.ttl)

    def check(self, value: str | None) -> None:
        """Raises InvalidRequest if options contradict each other, or for a wrong time."""
        ttl_ms(self.ttl)
        if value is not None and self.file is not None:
            raise InvalidRequest("a value is given twice", remedy="give VALUE or --file")

    async def read(self, value: str | None) -> bytes:
        """The bytes of the value. Raises InvalidRequest."""
        if value is not None:
            return value.encode(errors="surrogateescape")
        async with opened(self.file) as descriptor:
            found = bytearray()
            async for data in chunks_of(descriptor):
                found += data
                if len(found) > VALUE_SIZE_BYTES_MAX:
                    raise InvalidRequest("the value is too large", limit=VALUE_SIZE_BYTES_MAX)
            return bytes(found)


def ttl_ms(text: str | None) -> int | None:
    """``12h`` → milliseconds; 0 for ``0``; None for none. Raises InvalidRequest."""
    if text is None:
        return None
    return 0 if text == NEVER else time_ms(text)
