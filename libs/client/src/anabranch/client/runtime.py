"""The clock, ids, randomness and tasks that a client passes to its writers and readers."""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from anabranch.common.errors import AnabranchError, Closed
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng
from anabranch.common.runtime.trace_context import outside_of_spans

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class OpenPart(Protocol):
    """A writer or reader that has background work."""

    async def close(self) -> None: ...


class OpenParts:
    """The open parts. A part may depend on parts that were opened before it."""

    def __init__(self) -> None:
        self._parts: dict[OpenPart, None] = {}

    def add(self, part: OpenPart) -> None:
        self._parts[part] = None

    def discard(self, part: OpenPart) -> None:
        self._parts.pop(part, None)

    def newest_first(self) -> list[OpenPart]:
        """In the order of closing."""
        return list(reversed(self._parts))


async def failures_to_close(parts: Iterable[OpenPart]) -> list[AnabranchError]:
    """Close every part, also after one of them failed. Returns the failures."""
    failures: list[AnabranchError] = []
    for part in parts:
        try:
            await part.close()
        except AnabranchError as failure:
            failures.append(failure)
    return failures


@dataclass(frozen=True, slots=True)
class Runtime:
    """`tasks` is the client's task group: all background work ends with the client, which closes
    the `open_parts` that did not close themselves. With `tracer` None, nothing is traced."""

    clock: Clock
    ids: IdSource
    rng: Rng
    tasks: asyncio.TaskGroup
    tracer: "Tracer | None" = None
    open_parts: OpenParts = field(default_factory=OpenParts)

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work` in the background: it outlives its caller's work, and belongs to no span of
        it.

        Raises Closed if the client is ending because of a failure.
        """
        try:
            return self.tasks.create_task(work, context=outside_of_spans())
        except RuntimeError as error:
            work.close()
            raise Closed("the client is closing because of a failure") from error
