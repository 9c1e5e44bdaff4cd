"""The needs of every data command: the address of the cluster, and an event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from anabranch.cli.client_session import Session
from anabranch.cli.output import Output
from anabranch.client import Client, connect
from anabranch.common.errors import InvalidRequest, InvalidSetting, Unavailable
from anabranch.common.runtime.loops import loop_factory
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
    """The NATS address, as `nats_target` takes it. It may contain a password: never an argument."""
    return connection.nats or str(connection.data_dir.absolute() / ENDPOINTS_FILE)


def run_with_session(
    connection: Connection, command: Callable[[Session, Output], Awaitable[T]]
) -> T:
    """Connect, perform the command, disconnect. Raises Unavailable if no cluster answers."""

    async def perform() -> T:
        async with _session(connection) as session:
            return await command(session, Output(connection.json))

    return run_async(perform())


def run_with_client(connection: Connection, command: Callable[[Client, Output], Awaitable[T]]) -> T:
    """Like `run_with_session`, for commands that need the client alone."""

    async def perform() -> T:
        async with _client(address(connection)) as client:
            return await command(client, Output(connection.json))

    return run_async(perform())


def address(connection: Connection) -> str:
    """The URL of the gateway or of the NATS server.

    Raises InvalidRequest if both are named, InvalidSetting for a gateway without a URL, Unavailable
    if no cluster can be found.
    """
    if connection.http and connection.nats:
        raise InvalidRequest(
            "the options name both a gateway and a NATS server",
            remedy="name one; --http '' or --nats '' puts ANABRANCH_HTTP or ANABRANCH_NATS_URL off",
            http=connection.http,
        )

    if not connection.http:
        return nats_place(connection)
    if not connection.http.startswith(("http://", "https://")):
        raise InvalidSetting(
            "this is no address of a gateway: it begins with neither http:// nor https://",
            remedy="name it as http://host:port",
            url=connection.http,
        )
    return connection.http


@asynccontextmanager
async def _client(place: str) -> AsyncIterator[Client]:
    try:
        client = await connect(place, name="anabranch-cli", timeout_s=CONNECT_TIMEOUT_S)
    except Unavailable as error:
        what = "no gateway answers" if place.startswith("http") else "no cluster answers"
        raise Unavailable(what, remedy=START_HINT, **error.fields) from error
    async with client:
        yield client


@asynccontextmanager
async def _session(connection: Connection) -> AsyncIterator[Session]:
    async with session_on(address(connection)) as session:
        yield session


@asynccontextmanager
async def session_on(place: str) -> AsyncIterator[Session]:
    """A session on the cluster behind this address. Raises InvalidSetting, Unavailable if no
    service answers."""
    async with _client(place) as client:
        yield Session(client)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C cancels the work in order and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)
