"""What every data command needs: where the cluster is, and an event loop to talk to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import uvloop
from cyclopts import Parameter

from anabranch.cli.client_session import ClientSession
from anabranch.cli.output import Output
from anabranch.cli.session_port import Session
from anabranch.client import Client, connect
from anabranch.common.errors import InvalidRequest, Unavailable
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng
from anabranch.common.runtime.nats_target import ENDPOINTS_FILE

CONNECT_TIMEOUT_S = 3.0
DATA_DIR_DEFAULT = Path("out/anabranch")
START_HINT = "start a cluster with `anabranch up`, or name one with --nats or --http"

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True)
class Connection:
    """Options of every command that connects to a cluster."""

    http: Annotated[str | None, Parameter(env_var="ANABRANCH_HTTP")] = None
    "Address of an HTTP gateway, e.g. http://127.0.0.1:8080."
    nats: Annotated[str | None, Parameter(env_var="ANABRANCH_NATS_URL")] = None
    "URL of the cluster's NATS server, e.g. nats://127.0.0.1:4222, or its endpoints file."
    data_dir: Annotated[Path, Parameter(env_var="ANABRANCH_DATA_DIR")] = DATA_DIR_DEFAULT
    "Data directory of a cluster on this machine; the default if no address is given."
    json: Annotated[bool, Parameter(negative="")] = False
    "Print one JSON object per line."


def nats_place(connection: Connection) -> str:
    """Where NATS is, as `nats_target` takes it. It may hold a password: never an argument."""
    return connection.nats or str(connection.data_dir.absolute() / ENDPOINTS_FILE)


def run_with_session(
    connection: Connection, command: Callable[[Session, Output], Awaitable[T]]
) -> T:
    """Connect, perform the command, disconnect. Raises Unavailable when no cluster answers."""
    if connection.http and connection.nats:
        raise InvalidRequest(
            "the options name both a gateway and a NATS server",
            remedy="name one; --http '' or --nats '' puts ANABRANCH_HTTP or ANABRANCH_NATS_URL off",
            http=connection.http,
        )

    async def perform() -> T:
        opened = (
            through_gateway(connection.http)
            if connection.http
            else _through_client(nats_place(connection))
        )
        async with opened as session:
            return await command(session, Output(connection.json))

    return run_async(perform())


def run_with_client(connection: Connection, command: Callable[[Client, Output], Awaitable[T]]) -> T:
    """As `run_with_session`, for what the gateway does not serve: refused there by name."""
    if connection.http:
        raise InvalidRequest(
            "the HTTP gateway does not serve this command",
            remedy="name the cluster by --nats or --data-dir; --http '' puts ANABRANCH_HTTP off",
            http=connection.http,
        )

    async def perform() -> T:
        async with _client(nats_place(connection)) as client:
            return await command(client, Output(connection.json))

    return run_async(perform())


@asynccontextmanager
async def _client(place: str) -> AsyncIterator[Client]:
    try:
        client = await connect(place, name="anabranch-cli", timeout_s=CONNECT_TIMEOUT_S)
    except Unavailable as error:
        raise Unavailable("no cluster answers", remedy=START_HINT, **error.fields) from error
    async with client:
        yield client


@asynccontextmanager
async def _through_client(place: str) -> AsyncIterator[Session]:
    async with _client(place) as client:
        yield ClientSession(client)


@asynccontextmanager
async def through_gateway(url: str) -> AsyncIterator[Session]:
    """A session on the gateway. Raises InvalidSetting, Unavailable when nobody answers."""
    # Only commands that need it wait for the HTTP library to load: a sixth of their start.
    from anabranch.cli.http.session import HttpSession
    from anabranch.client.wire.http_calls import GatewayCalls

    async with GatewayCalls(url, clock=SystemClock(), rng=system_rng()) as calls:
        await calls.reach()
        yield HttpSession(calls, SystemIds())


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C cancels the work in order and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
