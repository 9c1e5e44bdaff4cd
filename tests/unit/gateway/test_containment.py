"""A defect in what one caller asked of the gateway ends that alone."""

import asyncio
from typing import Any

import pytest

from anabranch.common.errors import Defect
from anabranch.common.runtime.clock import SystemClock
from anabranch.gateway.bounds.changes import ChangeLimits, Changes
from anabranch.gateway.bounds.leases import LeaseLimits
from anabranch.gateway.events.appends import Appends
from anabranch.gateway.events.bodies import EventsBody
from anabranch.gateway.events.writers import OpenWriters


class Sink:
    """A writer that takes everything, or has a bug."""

    failed = None

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken
        self.taken: list[bytes] = []

    def write(self, payload: bytes, key: str | None) -> None:
        assert key is None
        self.write_batch([payload])

    def write_batch(self, payloads: list[bytes], _keys: object = None) -> None:
        if self.broken:
            raise KeyError("nobody expected this")
        self.taken += payloads

    async def flush(self) -> None:
        return


BODY = EventsBody([b"x"])


@pytest.mark.parametrize("where", ["opening", "writing"])
async def test_one_broken_destination_leaves_the_others_writable(where: str) -> None:
    sinks = {"s/bad": Sink(broken=True), "s/good": Sink(broken=False)}

    async def open_writer(destination: str) -> Any:
        if where == "opening" and destination == "s/bad":
            raise KeyError("nobody expected this")
        return sinks[destination]

    async with asyncio.TaskGroup() as group:
        clock = SystemClock()
        writers = OpenWriters(open_writer, clock, group, LeaseLimits("writers", 9, 9))
        limits = ChangeLimits(
            timeout_s=5, pending_size_bytes_max=1 << 20, answers_max=9, answer_age_s_max=9
        )
        appends = Appends(writers, Changes(clock, group, limits))
        with pytest.raises(Defect) as broken:
            await appends.append("s/bad", BODY)
        await appends.append("s/good", BODY)

    assert "KeyError" in str(broken.value.fields["cause"])
    assert sinks["s/good"].taken == [b"x"]
