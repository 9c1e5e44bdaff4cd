"""What writers and readers are given instead of reaching for it themselves."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.trace import Tracer

from anabranch.common.errors import Closed
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng
from anabranch.common.runtime.tracing import outside_of_spans


class OpenPart(Protocol):
    """A writer or reader that has background work."""

    async def close(self) -> None: ...


class OpenParts:
    """What is open; whoever was opened last may stand on what was opened before."""

    def __init__(self) -> None:
        self._parts: dict[OpenPart, None] = {}

    def add(self, part: OpenPart) -> None:
        self._parts[part] = None

    def discard(self, part: OpenPart) -> None:
        self._parts.pop(part, None)

    def newest_first(self) -> list[OpenPart]:
        """In the order of closing."""
        return list(reversed(self._parts))


@dataclass(frozen=True, slots=True)
class Runtime:
    """`tasks` is the client's task group: everything in the background ends with the client,
    which closes the `open_parts` that did not close themselves. `tracer` None: no traces."""

    clock: Clock
    ids: IdSource
    rng: Rng
    tasks: asyncio.TaskGroup
    tracer: Tracer | None = None
    open_parts: OpenParts = field(default_factory=OpenParts)

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do it in the background: it outlives what its caller is doing, and is no part of that.

        Raises Closed: the client is ending, because something in it failed.
        """
        try:
            return self.tasks.create_task(work, context=outside_of_spans())
        except RuntimeError as error:
            work.close()
            raise Closed("the client is closing because of a failure") from error
