"""Pages of a list: limited by the requested count and by the size of an answer."""

from collections.abc import Iterable
from typing import TypeVar

from anabranch.common.contracts.base import Contract
from anabranch.common.errors import InvalidRequest

PAGE_SIZE_BYTES_MAX = 512 * 1024
"""The maximum size of a page's items as JSON; a page always holds at least one item."""

T = TypeVar("T", bound=Contract)


def page_of(things: Iterable[T], count: int) -> tuple[tuple[T, ...], bool]:
    """The first items, at most `count`, and whether more follow."""
    page: list[T] = []
    size_bytes = 0
    for thing in things:
        size_bytes += len(thing.model_dump_json())
        if len(page) == count or (page and size_bytes > PAGE_SIZE_BYTES_MAX):
            return tuple(page), True
        page.append(thing)
    return tuple(page), False


def number_in(page_token: str) -> int | None:
    """The number in a page token; None for the first page. Raises InvalidRequest."""
    if not page_token:
        return None
    if not page_token.isascii() or not page_token.isdigit() or len(page_token) > 19:
        raise InvalidRequest(
            "not a page token of this query",
            remedy="use the answer's next_page_token, or none for the first page",
            page_token=page_token[:64],
        )
    return int(page_token)
