"""What a client does in its last moments, and what it says afterwards."""

import pytest

from anabranch.client.runtime import OpenParts
from anabranch.client.wire.nats_control import NatsControlPlane
from anabranch.common.contracts.commands import CreateScope
from anabranch.common.contracts.queries import ListScopes, ScopeList
from anabranch.common.errors import Closed
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from kit.client_bench import STREAM, bench


class _Part:
    async def close(self) -> None:
        return None


class _DeadConnection:
    def jetstream(self) -> None:
        return None

    def new_inbox(self) -> str:
        return "inbox"

    async def close(self) -> None:
        return None


def test_what_was_opened_last_is_closed_first() -> None:
    parts, older, newer = OpenParts(), _Part(), _Part()
    for part in (older, newer, older):
        parts.add(part)
    assert parts.newest_first() == [newer, older]
    parts.discard(newer)
    parts.discard(newer)
    assert parts.newest_first() == [older]


async def test_a_client_that_was_left_says_at_once_that_it_is_closed() -> None:
    async with bench() as b:
        client = b.client
    with pytest.raises(Closed):
        client.writer(STREAM)
    with pytest.raises(Closed):
        client.reader(STREAM)


async def test_a_closed_control_plane_asks_nobody() -> None:
    control = NatsControlPlane(
        _DeadConnection(),  # type: ignore[arg-type]
        clock=SystemClock(),
        ids=SeededIds(1),
    )
    await control.close()
    with pytest.raises(Closed):
        await control.query("list_scopes", ListScopes(), ScopeList, timeout_s=60)
    with pytest.raises(Closed):
        await control.execute(CreateScope(command_id="c", scope="s"), timeout_s=60)
