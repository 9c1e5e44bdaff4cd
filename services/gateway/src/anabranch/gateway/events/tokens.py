"""Opaque tokens of lists: where the next page begins. A token names its list, so that a token of
another list is refused and not misread. Tokens of positions are the client's.
"""

import msgspec

from anabranch.client.reading.position_tokens import decoded, encoded
from anabranch.common.errors import InvalidRequest


class PageToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="page"):
    """The list, and the token with which the controller continues it."""

    of: str
    after: str


def page_token(of: str, after: str) -> str:
    """The token of the page that follows; empty after the last one."""
    return encoded(PageToken(of, after)) if after else ""


def page_after(of: str, token: str) -> str:
    """Inverse of `page_token`. Raises InvalidRequest unless the token belongs to this list."""
    if not token:
        return ""
    opened = decoded(token, PageToken)
    if opened is None or opened.of != of:
        raise InvalidRequest(
            "the page token does not belong to this list",
            remedy="omit it, or send the next_page_token of the last answer",
        )
    return opened.after
