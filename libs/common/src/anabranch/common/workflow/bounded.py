"""Doing the same thing to many things at once, but not to too many."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from anabranch.common.errors import AnabranchError

T = TypeVar("T")


async def for_each(items: Iterable[T], limit: int, action: Callable[[T], Awaitable[None]]) -> None:
    """`await action(item)` for every item, at most `limit` at a time.

    After the first AnabranchError nothing new is begun; what runs ends, then it is raised.
    """
    remaining = iter(items)
    failures: list[AnabranchError] = []

    async def work() -> None:
        for item in remaining:
            try:
                await action(item)
            except AnabranchError as error:
                failures.append(error)
            if failures:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(work())
    if failures:
        raise failures[0]
