"""What writers and readers are given instead of reaching for it themselves."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.trace import Tracer

from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng


class OpenPart(Protocol):
    """A writer or reader that has background work."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """`tasks` is the client's task group: everything in the background ends with the client,
    which closes the `open_parts` that did not close themselves. `tracer` None: no traces."""

    clock: Clock
    ids: IdSource
    rng: Rng
    tasks: asyncio.TaskGroup
    tracer: Tracer | None = None
    open_parts: set[OpenPart] = field(default_factory=set)
