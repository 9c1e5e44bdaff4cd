"""Performs one action for many items, a limited number at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain, islice
from typing import TypeVar

from anabranch.common.errors import AnabranchError

T = TypeVar("T")
R = TypeVar("R")


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


async def answers(items: Sequence[T], limit: int, ask: Callable[[T], Awaitable[R]]) -> Sequence[R]:
    """The answers for every item, in their order; errors as in `for_each`."""
    found: dict[int, R] = {}

    async def note(at: int) -> None:
        found[at] = await ask(items[at])

    await for_each(range(len(items)), limit, note)
    return [found[at] for at in range(len(items))]
