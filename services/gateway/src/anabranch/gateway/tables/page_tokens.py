"""Tokens of pages of entries: the key after which the next page begins.

A token names its list by a digest of the table's life and the bounds, so that a token of another
list, or of an earlier life of the table, is refused and not misread.
"""

import hashlib

import msgspec

from anabranch.client.reading.position_tokens import decoded, encoded
from anabranch.common.errors import InvalidRequest
from anabranch.gateway.tables.keys import EntryRange, StoredKey


class _Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="entries"):
    of: str
    primary: bytes
    secondary: bytes | None = None


def entries_token(life: str, entries: EntryRange, last: StoredKey) -> str:
    """The token of the page that follows `last` in a scan of the range."""
    parts = last if isinstance(last, tuple) else (last,)
    return encoded(_Token(_list_name(life, entries), *parts))


def last_key(life: str, entries: EntryRange, token: str) -> StoredKey | None:
    """Inverse of `entries_token`; None without a token. Raises InvalidRequest for another token."""
    if not token:
        return None
    opened = decoded(token, _Token)
    if opened is None or opened.of != _list_name(life, entries):
        raise InvalidRequest(
            "the page token does not belong to this list",
            remedy="omit it, or send the next_page_token of the last answer with the same bounds",
        )
    return opened.primary if opened.secondary is None else (opened.primary, opened.secondary)


def _list_name(life: str, entries: EntryRange) -> str:
    bounds = [entries.start, entries.end, entries.prefix, entries.primary]
    return hashlib.sha256(msgspec.json.encode([life, bounds])).hexdigest()[:16]
