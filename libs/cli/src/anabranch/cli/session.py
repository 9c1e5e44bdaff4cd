"""What every data command needs: where the cluster is, and an event loop to talk to it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import uvloop
from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.client import Client, connect
from anabranch.common.errors import Unavailable

CONNECT_TIMEOUT_S = 3.0
DATA_DIR_DEFAULT = Path("out/anabranch")
START_HINT = "start a cluster with `anabranch up`, or name one with --nats"

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True)
class Connection:
    """Options of every command that talks to a cluster."""

    nats: Annotated[str | None, Parameter(env_var="ANABRANCH_NATS_URL")] = None
    "Address of the cluster's NATS server, e.g. nats://127.0.0.1:4222."
    data_dir: Annotated[Path, Parameter(env_var="ANABRANCH_DATA_DIR")] = DATA_DIR_DEFAULT
    "Data directory of a cluster on this machine; used when no address is given."
    json: Annotated[bool, Parameter(negative="")] = False
    "Print one JSON object per line."


def nats_url(connection: Connection) -> str:
    """The address to connect to. Raises Unavailable when no cluster can be found."""
    if connection.nats is not None:
        return connection.nats
    path = connection.data_dir / "endpoints.json"
    try:
        return str(json.loads(path.read_text())["nats"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            "no cluster answers: none has published its endpoints here",
            remedy=START_HINT,
            path=str(path),
        ) from error


def run_with_client(connection: Connection, command: Callable[[Client, Output], Awaitable[T]]) -> T:
    """Connect, perform the command, disconnect. Raises Unavailable when no cluster answers."""
    url = nats_url(connection)

    async def perform() -> T:
        try:
            client = await connect(url, name="anabranch-cli", timeout_s=CONNECT_TIMEOUT_S)
        except Unavailable as error:
            raise Unavailable("no cluster answers", remedy=START_HINT, url=url) from error
        async with client:
            return await command(client, Output(connection.json))

    return run_async(perform())


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C cancels the work in order and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
