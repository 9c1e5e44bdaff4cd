"""A caller that reads what it has changed: from any controller, as soon as its operation ended.

It remembers read tokens as a client does. What it is answered may be newer than the end of its
operation, never older.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from anabranch.client.wire.read_tokens import ReadTokens, points_in
from anabranch.common.contracts import queries
from anabranch.common.contracts.command import about
from anabranch.common.contracts.commands import Answer, Command
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.controller.handlers.registry import answer_query
from kit.control_world import World
from kit.rng import Random

END_S = 8.0
PAUSE_S = 0.05
QUERY_S = 10.0
OWN_READS = "reads of one's own operations"


class OwnReads:
    """What one caller knows of read tokens, and how it asks."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._tokens = ReadTokens()

    def learn(self, answer: Answer) -> None:
        """A command was answered so."""
        self._tokens.merge(points_in(answer))

    async def of(self, command: Command) -> None:
        """Wait a while for the end of the command, then look at what it was about."""
        if not await self._ended(command):
            return
        at_end = self._world.ended[command.command_id]
        for ref in self._touched(command, at_end):
            query = queries.DescribeStream(scope=ref.scope, stream=ref.stream)
            for number in range(len(self._world.controllers)):
                found = await self._ask("describe_stream", query, number)
                if found is None or not found["ok"]:
                    continue  # nobody answers; or it is not there, which is said at the head only
                self._world.counts[OWN_READS] += 1
                if found["revision"] < at_end[stream_events(ref)]:
                    self._world.wrong.append(
                        f"{ref} was answered as before the end of {command.command_id}"
                    )

    def _touched(self, command: Command, at_end: Mapping[str, int]) -> list[StreamRef]:
        """The streams that must be seen as they were when the command's work ended."""
        if command.spreads:
            parts = (subject.split(".") for subject in at_end)
            return [
                StreamRef(ScopeName(part[4]), StreamName(part[5]))
                for part in parts
                if part[3] == "stream"
            ]
        stream = about(command).stream
        return [] if stream is None else [StreamRef(ScopeName(command.scope), StreamName(stream))]

    async def _ended(self, command: Command) -> bool:
        query = queries.GetOperation(operation=command.command_id, **about(command)._asdict())
        until_s = self._world.clock.monotonic() + END_S
        while self._world.clock.monotonic() < until_s:
            found = await self._ask("operation", query, self._rng.randrange(8))
            if found is not None and found["ok"]:
                told = queries.OperationFound.model_validate(found)
                self._tokens.merge(points_in(told))
                if told.state != "running":
                    return True
            await self._world.clock.sleep(PAUSE_S)
        return False

    async def _ask(self, name: str, query: queries.Query, number: int) -> dict[str, Any] | None:
        """The answer of one of the controllers; None if none is there, or it stands still."""
        ready = [one for one in self._world.controllers if one.is_caught_up]
        if not ready:
            return None
        body = self._tokens.demanded_by(query).model_dump_json().encode()
        try:
            async with asyncio.timeout(QUERY_S):
                answer = await answer_query(
                    ready[number % len(ready)].query_desk, name, Envelope(body)
                )
        except TimeoutError:
            return None
        found: dict[str, Any] = json.loads(answer)
        return found
