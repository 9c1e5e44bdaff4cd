"""Controllers as processes of this machine, stores that answer on NATS, and a stubborn caller.

The stores keep the rules of real ones (`sim_segments`); what is asked of them can be held up, so
that a test may strike in the middle of the work.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.error import URLError
from urllib.request import urlopen

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.client.wire.read_tokens import ReadTokens
from anabranch.common.contracts import commands, queries, subjects
from anabranch.common.contracts.commands import ANSWERS
from anabranch.common.errors import AnabranchError, OperationNotFound
from anabranch.common.model.hashing import shard_of
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.port_file import PORT_FILE_VARIABLE
from kit.controller_caller import Caller
from kit.sim_segments import SimSegments

TRY_S = 3.0
PAUSE_S = 0.05


class NatsAddress(Protocol):
    """A NATS server or a cluster of them, as the controllers' settings name them."""

    @property
    def url(self) -> str: ...

    @property
    def monitor_url(self) -> str: ...


class ControllerProcess:
    """``python -m anabranch.controller`` on NATS."""

    def __init__(self, name: str, nats: NatsAddress, directory: Path, **more: str) -> None:
        self._port_file = directory / f"{name}.port"
        settings = {
            "NATS_URL": nats.url,
            "NATS_MONITOR_URL": nats.monitor_url,
            "HEALTH_BIND": "127.0.0.1:0",
            **more,
        }
        environment = {f"ANABRANCH_CONTROLLER_{key}": value for key, value in settings.items()}
        with (directory / f"{name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "anabranch.controller"],
                env={**os.environ, **environment, PORT_FILE_VARIABLE: str(self._port_file)},
                stdout=log,
                stderr=log,
            )

    def is_ready(self) -> bool:
        """Whether it says so itself."""
        assert self._process.poll() is None, "the controller has ended"
        with suppress(OSError, URLError, ValueError):
            port = int(self._port_file.read_text())
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as reply:
                return bool(json.load(reply)["ready"])
        return False

    def stand_still(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing. `kill` ends it all the same."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        self._process.kill()
        self._process.wait(timeout=10)


async def all_ready(processes: Sequence[ControllerProcess]) -> None:
    """Wait until every one says so; bounded by the caller's timeout."""
    for process in processes:
        while not await asyncio.to_thread(process.is_ready):  # noqa: ASYNC110  another process
            await asyncio.sleep(PAUSE_S)


@contextmanager
def controller_processes(
    count: int, nats: NatsAddress, directory: Path, **more: str
) -> Iterator[list[ControllerProcess]]:
    """So many controllers; none outlives the block."""
    started: list[ControllerProcess] = []
    try:
        for number in range(count):
            name = f"controller-{number}"
            started += [ControllerProcess(name, nats, directory, **more)]
        yield started
    finally:
        for process in started:
            process.kill()


class StoresOnNats:
    """Every container's store. While `held`, requests wait."""

    def __init__(self, client: Client) -> None:
        self.segments = SimSegments(SystemClock())
        self.requests = 0
        self.held = asyncio.Event()
        self.held.set()
        self._came = asyncio.Event()
        self._client = client

    async def start(self) -> None:
        await self._client.subscribe("ana.seg.*.*", cb=self._answer)
        await self._client.flush()

    async def asked(self, count: int) -> None:
        """Wait until so many requests have come."""
        while self.requests < count:
            self._came.clear()
            await self._came.wait()

    async def _answer(self, message: Msg) -> None:
        self.requests += 1
        self._came.set()
        await self.held.wait()
        with suppress(nats.errors.Error):  # the server was restarted; the request is repeated
            await message.respond(self.segments.respond(message.subject, message.data))


class StubbornCaller:
    """Repeats a command under its id until it is answered, and asks until its operation ended."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queries = Caller(client)
        self._seen = ReadTokens()

    async def perform(self, command: commands.Command) -> None:
        """Until it has succeeded. Raises what it failed with; bounded by the caller's timeout."""
        answer = await self._answered(command)
        if isinstance(answer, commands.Rejected):
            raise answer.error.to_error()
        query = queries.GetOperation(
            operation=answer.operation,
            scope=command.scope,
            stream=getattr(command, "stream", None),
            at_least=answer.read_token,
        )
        while True:
            with suppress(nats.errors.Error, TimeoutError):
                if await self._has_succeeded(query):
                    return
            await asyncio.sleep(PAUSE_S)

    async def describe(self, ref: StreamRef) -> queries.StreamDescription:
        """The stream after everything performed; asked for until any controller answers."""
        query = queries.DescribeStream(
            scope=ref.scope, stream=ref.stream, also_at_least=tuple(self._seen.points())
        )
        while True:
            with suppress(nats.errors.Error, TimeoutError):
                return await self._queries.ask("describe_stream", query, queries.StreamDescription)
            await asyncio.sleep(PAUSE_S)

    async def accepted(self, command: commands.Command) -> None:
        """Until it is accepted. Raises what it was rejected with."""
        answer = await self._answered(command)
        if isinstance(answer, commands.Rejected):
            raise answer.error.to_error()

    async def _has_succeeded(self, query: queries.GetOperation) -> bool:
        try:
            found = await self._queries.ask("operation", query, queries.OperationFound)
        except OperationNotFound:
            raise
        except AnabranchError:
            return False
        if found.state == "failed":
            assert found.error is not None
            raise found.error.to_error()
        self._seen.merge(found.read_tokens)
        return found.state == "succeeded"

    async def _answered(self, command: commands.Command) -> commands.Answer:
        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox)
        stream = getattr(command, "stream", None)
        name = f"{command.scope}/{stream}" if stream else command.scope
        subject = subjects.command(shard_of(name), command.kind, command.scope, stream)
        body = command.model_copy(update={"reply_to": inbox}).model_dump_json().encode()
        while True:
            with suppress(nats.errors.Error, TimeoutError, OSError):
                await self._client.jetstream().publish(subject, body, timeout=TRY_S)
                reply = await subscription.next_msg(timeout=TRY_S)
                await subscription.unsubscribe()
                return ANSWERS.validate_json(reply.data)
            await asyncio.sleep(PAUSE_S)
