"""A source of facts that is asked once, within a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from anabranch.cli.doctor.finding import CannotLook
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.threads import run_in_daemon

SOURCE_S_MAX = 8.0

T = TypeVar("T")


class Once(Generic[T]):
    """The first call gathers; later ones get the same answer, or raise the same error."""

    def __init__(
        self, gather: Callable[[], Awaitable[T]], *, seconds_max: float = SOURCE_S_MAX
    ) -> None:
        self._gather = gather
        self._seconds_max = seconds_max
        self._answers: list[T] = []
        self._error: Exception | None = None

    async def __call__(self) -> T:
        if self._error is not None:
            raise self._error
        if not self._answers:
            try:
                async with asyncio.timeout(self._seconds_max):
                    self._answers.append(await self._gather())
            except (AnabranchError, CannotLook, OSError, TimeoutError) as error:
                self._error = error
                raise
        return self._answers[0]


def blocking(name: str, work: Callable[[], T]) -> Once[T]:
    """A source that blocks. Its thread is a daemon: one that hangs does not delay the end."""
    return Once(lambda: run_in_daemon(f"doctor-{name}", work))
