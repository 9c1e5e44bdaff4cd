"""Parked commands from an operator's side: the `anabranch` command on a real controller."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass

import pytest
from nats.aio.client import Client

from anabranch.cli.__main__ import run
from anabranch.common.contracts import queries, subjects
from anabranch.common.contracts.commands import CreateScope
from anabranch.common.errors import Unavailable
from anabranch.common.model.hashing import shard_of
from anabranch.controller.adapters.parked_commands import JetStreamParkedCommands
from anabranch.controller.domain.parking import ParkedCommand
from kit.controller_caller import Caller, StartController
from kit.infra import NatsServer


@dataclass
class Operator:
    url: str
    output: pytest.CaptureFixture[str]

    async def run(self, *words: str) -> tuple[int, list[dict[str, object]]]:
        """The exit code, and what was printed."""
        arguments = ["operation", *words, "--nats", self.url, "--json"]
        code = await asyncio.to_thread(run, arguments)
        told = self.output.readouterr()
        return code, [json.loads(line) for line in (told.out or told.err).splitlines()]


@pytest.fixture
def operator(nats_server: NatsServer, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(nats_server.url, capsys)


def poison(scope: str) -> ParkedCommand:
    """A command that would be handled now."""
    bucket = shard_of(scope)
    command = CreateScope(command_id=f"of-{scope}", scope=scope)
    return ParkedCommand(
        command_id=command.command_id,
        bucket=bucket,
        subject=subjects.command(bucket, command.kind, scope),
        body=command.model_dump_json().encode(),
        headers={},
        error="ZeroDivisionError('division by zero')",
        attempts=10,
        first_ms=1,
        last_ms=2,
    )


async def park(parked: JetStreamParkedCommands, command: ParkedCommand) -> None:
    """Store it also if NATS is restarted meanwhile."""
    async with asyncio.timeout(30.0):
        while True:
            with suppress(Unavailable):
                return await parked.park(command)


async def test_parked_commands_are_listed_page_by_page_redriven_and_dropped(
    controller: StartController, caller: Caller, client: Client, operator: Operator
) -> None:
    async with controller():
        parked = JetStreamParkedCommands(client)
        for index in range(120):
            await park(parked, poison(f"s{index}"))

        code, listed = await operator.run("parked")
        assert (code, len(listed)) == (0, 120)
        assert listed[7]["command_id"] == "of-s7"
        assert listed[7]["error"] == "ZeroDivisionError('division by zero')"
        assert json.loads(str(listed[7]["body"]))["scope"] == "s7"

        assert await operator.run("drop", "of-s1") == (
            0, [{"command_id": "of-s1", "done": "dropped"}],
        )  # fmt: skip
        assert await operator.run("redrive", "of-s0") == (
            0, [{"command_id": "of-s0", "done": "redriven"}],
        )  # fmt: skip
        await until_scopes(caller, ("s0",))

        code, (refusal,) = await operator.run("redrive", "of-s0")
        assert code != 0
        assert refusal["error"]["code"] == "operation-not-found"  # type: ignore[index]
        assert len((await operator.run("parked"))[1]) == 118


async def until_scopes(caller: Caller, names: tuple[str, ...]) -> None:
    async with asyncio.timeout(10):
        while True:
            found = await caller.ask("list_scopes", queries.ListScopes(), queries.ScopeList)
            if found.scopes == names:
                return
            await asyncio.sleep(0.02)
