"""Keys on the command line, and the keys of an open table. Pure."""

import base64
import binascii
from typing import NamedTuple

from anabranch.common.errors import InvalidKey

StoredKey = bytes | tuple[bytes, bytes]
"""A key as the client takes it for tables without serializers."""


class EntryKey(NamedTuple):
    """A key as a command names it. `secondary` None: it names none."""

    primary: bytes
    secondary: bytes | None = None

    def of_table(self, *, has_pairs: bool) -> StoredKey:
        """The key of a table with or without secondary keys; in one with them, the empty secondary
        key if the command names none. Raises InvalidKey."""
        if has_pairs:
            return self.primary, self.secondary or b""
        if self.secondary is not None:
            raise InvalidKey("the table has no secondary keys", remedy="omit the secondary key")
        return self.primary


def key_bytes(text: str, *, in_base64: bool) -> bytes:
    """The bytes of a key that a user typed. Raises InvalidKey."""
    if not in_base64:
        # Bytes of the command line that are not UTF-8 arrive as surrogates.
        return text.encode(errors="surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidKey("the key is not base64", remedy="omit --base64-keys", key=text) from error
