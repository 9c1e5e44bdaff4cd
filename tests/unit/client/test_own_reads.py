"""A client demands what its commands have changed, however it learned that they ended."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import nats.errors
import pytest
from nats.aio.client import Client as NatsClient

from anabranch.client.wire.nats_control import NatsControlPlane
from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import (
    Accepted,
    DeleteScope,
    OperationState,
    OperationStatus,
    Rejected,
    SealStream,
)
from anabranch.common.contracts.membership import ControllerList
from anabranch.common.contracts.queries import ListScopes, OperationFound, QueryFailed, ScopeList
from anabranch.common.errors import ReadTokenUnknown, ScaleRefused
from anabranch.common.runtime.ids import SeededIds
from kit.virtual_time import VirtualClock, run_virtual

SEAL = SealStream(command_id="o", scope="s", stream="x")
DELETE = DeleteScope(command_id="o", scope="s", recursive=True)
ACCEPTED = ReadToken(shard=1, sequence=10)
ENDED = ReadToken(shard=1, sequence=12)
ELSEWHERE = ReadToken(shard=2, sequence=7)
ANSWER = Accepted(operation="o", read_token=ACCEPTED)
NOTICE = OperationStatus(operation="o", state=OperationState.SUCCEEDED, read_token=ENDED)
FOUND = OperationFound(operation="o", state="succeeded", read_tokens=(ENDED, ELSEWHERE))


@dataclass
class Message:
    subject: str
    data: bytes
    reply: str = "ana.ctl.a.any"
    headers: dict[str, str] | None = None


@dataclass
class Heard:
    """A subscription: what comes on it, at once or never."""

    messages: list[Contract]

    async def next_msg(self, timeout: float) -> Message:  # noqa: ASYNC109  as nats-py has it
        if self.messages:
            return Message("", self.messages.pop(0).model_dump_json().encode())
        await asyncio.sleep(timeout)
        raise nats.errors.TimeoutError

    async def unsubscribe(self) -> None:
        return None


@dataclass
class Bus:
    """A NATS connection, its JetStream, and the one controller that answers."""

    answer: Contract | None = None
    notice: Contract | None = None
    found: OperationFound | None = None
    refused: list[ReadTokenUnknown] = field(default_factory=list)
    demanded: dict[str, list[set[tuple[int, int]]]] = field(default_factory=dict)
    receive: Callable[[Any], Awaitable[None]] | None = None

    def jetstream(self) -> "Bus":
        return self

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, cb: Any = None, **_options: Any) -> Heard:
        if cb is not None:
            self.receive = cb
        one = self.notice if subject.startswith("ana.note.") else self.answer
        return Heard([] if one is None else [one])

    async def publish(self, subject: str, payload: bytes, reply: str = "", **_options: Any) -> None:
        if not reply:
            return  # a command
        name = subject.rsplit(".", 1)[1]
        asked = json.loads(payload)
        points = [asked["at_least"], *asked["also_at_least"]] if asked.get("at_least") else []
        demanded = {(point["shard"], point["sequence"]) for point in points}
        self.demanded.setdefault(name, []).append(demanded)
        assert self.receive is not None
        await self.receive(Message(reply, self._answer(name).model_dump_json().encode()))

    def _answer(self, name: str) -> Contract:
        if name == "list_controllers":
            return ControllerList(controllers=())
        if self.refused:
            return QueryFailed(error=ErrorBody.of(self.refused.pop(0)))
        if name == "operation":
            assert self.found is not None
            return self.found
        return ScopeList(scopes=())


def demanded_after(bus: Bus, command: CommandBase) -> set[tuple[int, int]]:
    """What the client demands of a query once the command has ended, or is refused."""

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        control = NatsControlPlane(cast(NatsClient, bus), clock=clock, ids=SeededIds(1))
        with contextlib.suppress(ScaleRefused):
            await control.execute(command, timeout_s=30)
        await control.query("list_scopes", ListScopes(), ScopeList, timeout_s=1)

    run_virtual(main())
    return bus.demanded["list_scopes"][-1]


def test_an_announced_end_is_demanded_to_be_seen() -> None:
    assert demanded_after(Bus(ANSWER, NOTICE), SEAL) == {(1, 12)}


def test_an_end_that_was_asked_for_is_demanded_to_be_seen() -> None:
    bus = Bus(ANSWER, found=FOUND)
    assert demanded_after(bus, SEAL) == {(1, 12), (2, 7)}


def test_an_end_that_was_found_before_any_answer_came_is_demanded_to_be_seen() -> None:
    assert demanded_after(Bus(found=FOUND), SEAL) == {(1, 12), (2, 7)}


def test_the_end_of_what_spreads_over_shards_is_asked_for_although_it_was_announced() -> None:
    bus = Bus(ANSWER, NOTICE, FOUND)
    assert demanded_after(bus, DELETE) == {(1, 12), (2, 7)}


def test_the_reason_of_a_rejection_is_demanded_to_be_seen() -> None:
    refused = Rejected(error=ErrorBody.of(ScaleRefused("no")), read_token=ENDED)
    assert demanded_after(Bus(refused), SEAL) == {(1, 12)}


@pytest.mark.parametrize("unknown", [1, 2])
def test_points_that_the_cluster_has_never_had_are_given_up_one_by_one(unknown: int) -> None:
    lost = [ReadTokenUnknown("no", shard=p.shard, sequence=p.sequence) for p in (ENDED, ELSEWHERE)]
    bus = Bus(ANSWER, found=FOUND)

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        control = NatsControlPlane(cast(NatsClient, bus), clock=clock, ids=SeededIds(1))
        await control.execute(SEAL, timeout_s=30)
        bus.refused = lost[:unknown]
        await control.query("list_scopes", ListScopes(), ScopeList, timeout_s=1)

    run_virtual(main())
    assert bus.demanded["list_scopes"][-1] == {(1, 12), (2, 7)} - {
        (error.fields["shard"], error.fields["sequence"]) for error in lost[:unknown]
    }
