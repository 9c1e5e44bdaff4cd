"""The needs of every data command: the address of the cluster, and an event loop."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from anabranch.cli.contexts import contexts_file, load_contexts
from anabranch.cli.output import Form, Output
from anabranch.cli.target import Target, find_target
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.loops import loop_factory

if TYPE_CHECKING:
    from anabranch.cli.client_session import Session
    from anabranch.client import Client

CONNECT_TIMEOUT_S = 3.0
START_HINT = "start a cluster with `anabranch up`, or name one with --nats, --http or --context"

T = TypeVar("T")


_SHARED = Group("Cluster and output", sort_key=90)


@Parameter(name="*", group=_SHARED)
@dataclass(frozen=True)
class Shown:
    """Options of every command that shows results."""

    output: Annotated[Form, Parameter(name=("--output", "-o"))] = Form.TABLE
    "How results are shown: a table, one JSON object per line, or YAML documents."
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "Short for --output json."

    @property
    def form(self) -> Form:
        return Form.JSON if self.json else self.output


@Parameter(name="*", group=_SHARED)
@dataclass(frozen=True)
class ClusterAddress:
    """Options that say which cluster is meant."""

    http: str | None = None
    "Address of an HTTP gateway, e.g. http://127.0.0.1:8080. [env: ANABRANCH_HTTP]"
    nats: str | None = None
    "URL of the cluster's NATS server, or its endpoints file. [env: ANABRANCH_NATS_URL]"
    data_dir: Path | None = None
    "Data directory of a cluster on this machine. [env: ANABRANCH_DATA_DIR]"
    context: str | None = None
    "A saved context: `anabranch context list`. [env: ANABRANCH_CONTEXT]"

    @property
    def target(self) -> Target:
        """The cluster that the options, the environment or the current context name.

        Raises InvalidRequest and InvalidSetting, as `find_target`.
        """
        options = {
            "http": self.http,
            "nats": self.nats,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "context": self.context,
        }
        return find_target(options, os.environ, lambda: load_contexts(contexts_file(os.environ)))


@Parameter(name="*")
@dataclass(frozen=True)
class Connection(ClusterAddress, Shown):
    """Options of every command that connects to a cluster."""


def run_with_session(
    connection: Connection, command: "Callable[[Session, Output], Awaitable[T]]"
) -> T:
    """Connect, perform the command, disconnect. Raises Unavailable if no cluster answers."""

    async def perform() -> T:
        async with session_on(connection.target.address) as session:
            return await command(session, Output(connection.form))

    return run_async(perform())


def run_with_client(
    connection: Connection, command: "Callable[[Client, Output], Awaitable[T]]"
) -> T:
    """Like `run_with_session`, for commands that need the client alone."""

    async def perform() -> T:
        async with _client(connection.target.address) as client:
            return await command(client, Output(connection.form))

    return run_async(perform())


@asynccontextmanager
async def _client(place: str) -> "AsyncIterator[Client]":
    from anabranch.client import connect

    try:
        client = await connect(place, name="anabranch-cli", timeout_s=CONNECT_TIMEOUT_S)
    except Unavailable as error:
        what = "no gateway answers" if place.startswith("http") else "no cluster answers"
        raise Unavailable(what, remedy=START_HINT, **error.fields) from error
    async with client:
        yield client


@asynccontextmanager
async def session_on(place: str) -> "AsyncIterator[Session]":
    """A session on the cluster behind this address. Raises InvalidSetting, Unavailable if no
    service answers."""
    from anabranch.cli.client_session import Session

    async with _client(place) as client:
        yield Session(client)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C cancels the work in order and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)
