"""Talks to a controller as a client would: commands, operations, queries."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Protocol, TypeVar

import nats.errors
from nats.aio.client import Client

from anabranch.common.contracts import commands, queries, subjects
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.command import about, subject_of
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import run_controller

STARTS_MAX = 3
DEADLINE_S = 15.0
AGAIN_S = 4.0
"""After which whoever got no answer asks again: the server may have been restarted meanwhile."""

A = TypeVar("A", bound=Contract)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process or task brings about."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


class StartController(Protocol):
    def __call__(
        self, container_count: int = 4, tier2_url: str = "", *, retention_period_s: float = 60.0
    ) -> AbstractAsyncContextManager[Lifetime]: ...


class Caller:
    """Sends commands and queries as a client would."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._js = client.jetstream()
        self._numbers = count(1)

    def new_id(self) -> str:
        return f"command-{next(self._numbers)}"

    async def send(self, command: commands.Command) -> commands.Answer:
        """Publish a command until the controller answers."""
        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox)
        body = command.model_copy(update={"reply_to": inbox}).model_dump_json().encode()

        async def attempt() -> bytes:
            await self._js.publish(subject_of(command), body)
            return (await subscription.next_msg(timeout=AGAIN_S)).data

        try:
            return commands.ANSWERS.validate_json(await _answered(attempt))
        finally:
            await subscription.unsubscribe()

    async def perform(self, command: commands.Command) -> None:
        """Send a command and wait until its operation succeeded. Raises what it failed with."""
        answer = await self.send(command)
        if isinstance(answer, commands.Rejected):
            raise answer.error.to_error()
        await self.outcome(command, answer)

    async def outcome(self, command: commands.Command, answer: commands.Accepted) -> None:
        """Poll the operation until it ended. Raises what it failed with."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await self.ask(
                    "operation",
                    queries.GetOperation(
                        operation=answer.operation,
                        **about(command)._asdict(),
                        at_least=answer.read_token,
                    ),
                    queries.OperationFound,
                )
                if found.state == "succeeded":
                    return
                if found.state == "failed":
                    assert found.error is not None
                    raise found.error.to_error()
                await asyncio.sleep(0.02)

    async def ask(self, name: str, query: queries.Query, kind: type[A]) -> A:
        """The answer to a query. Raises the error of a `QueryFailed`."""
        asked = query.model_dump_json().encode()

        async def attempt() -> bytes:
            return (await self._client.request(subjects.query(name), asked, timeout=AGAIN_S)).data

        reply = await _answered(attempt)
        if not json.loads(reply)["ok"]:
            raise queries.QueryFailed.model_validate_json(reply).error.to_error()
        return kind.model_validate_json(reply)


async def _answered(attempt: Callable[[], Awaitable[bytes]]) -> bytes:
    """The first answer; everything that is asked may be asked again."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await attempt()
            except nats.errors.TimeoutError:
                continue
            except nats.errors.NoRespondersError:
                await asyncio.sleep(0.05)  # the server is back before its callers are


async def run_supervised(settings: Settings, lifetime: Lifetime) -> None:
    """Run a controller, and start it again as a supervisor does if NATS was away at its start."""
    for attempt in range(1, STARTS_MAX + 1):
        try:
            await run_controller(settings, lifetime)
        except Unavailable:
            if lifetime.ready or attempt == STARTS_MAX:
                raise
        else:
            return


async def refusal_of(run: Callable[[Lifetime], Awaitable[None]]) -> AnabranchError | None:
    """Run a controller until it is ready, then stop it; what kept it from it, if anything."""
    lifetime = Lifetime()

    async def stop_when_ready() -> None:
        await until(lambda: lifetime.ready)
        lifetime.request_stop()

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(stop_when_ready())
        try:
            await run(lifetime)
        except AnabranchError as error:
            return error
        finally:
            waiting.cancel()
    return None
