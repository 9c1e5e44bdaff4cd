"""What commands ask about reader groups, whichever way they reach the cluster.

Two fulfil it: `client_groups` on the Python client, `http.groups` on the HTTP gateway. What is told
comes as fields, the same ones from both. A *place* is ``{"offset": …, "event_index": …}``, a cut
of one stream ``{"<segment id>": <place>}``.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from anabranch.cli.admin_port import Fields
from anabranch.client import Operation, ReaderGroupConfig

Place = Mapping[str, int]
Cuts = Mapping[str, Mapping[str, Place]]
"""Stream → its cut."""


class Groups(Protocol):
    """The methods raise what those of `client.reader_groups` and `client.reader_group` raise."""

    async def create(
        self, group: str, config: ReaderGroupConfig, *, wait_s: float
    ) -> Operation: ...

    async def reset(
        self,
        group: str,
        config: ReaderGroupConfig | None,
        *,
        expected_generation: int | None,
        wait_s: float,
    ) -> Operation:
        """No configuration: as before, from where it began."""
        ...

    async def delete(self, group: str, *, wait_s: float) -> Operation: ...

    def list_names(self, scope: str) -> AsyncIterator[str]: ...

    async def config(self, group: str) -> ReaderGroupConfig: ...

    async def show(self, group: str) -> Fields:
        """`scope`, `group`, `state`, `generation`, `created_ms`, `complete`, `streams`; `readers`
        (`reader_id`, `segments`, `lag`), `segments` (`segment`, `reader_id`, `offset`,
        `event_index`, `lag`), `lag` (`events`, `bytes`, `seconds`, `exact`), `checkpoints` under
        way (`name`, `kind`, `waiting`)."""
        ...

    async def checkpoint(self, group: str, name: str | None, *, wait_s: float) -> Fields:
        """`name`, `state` (running or complete), `waiting`, `stream_cuts`. Begins it; returns when
        it is complete, or as it is when time is over."""
        ...

    async def cuts(self, group: str, *, wait_s: float) -> Cuts: ...

    async def offline(self, group: str, reader_id: str) -> None: ...

    async def subscribers(self, stream: str) -> list[Fields]:
        """`subscriber`, `generation`, `cut`."""
        ...
