"""What writers and readers are given instead of reaching for it themselves."""

import asyncio
from dataclasses import dataclass

from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng


@dataclass(frozen=True, slots=True)
class Runtime:
    """`tasks` is the client's task group: everything in the background ends with the client."""

    clock: Clock
    ids: IdSource
    rng: Rng
    tasks: asyncio.TaskGroup
