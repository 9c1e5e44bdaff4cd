"""Performs one action for many items, a limited number at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain, islice
from typing import TypeVar

from anabranch.common.errors import AnabranchError

T = TypeVar("T")


async def for_each(items: Iterable[T], limit: int, action: Callable[[T], Awaitable[None]]) -> None:
    """`await action(item)` for every item, at most `limit` at a time.

    After the first AnabranchError no further action begins; those in progress end, then it is
    raised.
    """
    remaining = iter(items)
    first = list(islice(remaining, limit))
    if len(first) <= 1 < limit:
        for only in first:
            await action(only)  # the most common case needs no task
        return
    failures: list[AnabranchError] = []

    async def work(own: T) -> None:
        for item in chain((own,), remaining):
            try:
                await action(item)
            except AnabranchError as error:
                failures.append(error)
            if failures:
                return

    async with asyncio.TaskGroup() as group:
        for item in first:
            group.create_task(work(item))
    if failures:
        raise failures[0]
