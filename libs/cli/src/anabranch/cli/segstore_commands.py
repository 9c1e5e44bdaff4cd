"""The commands `anabranch segstore …`."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import cyclopts

from anabranch.cli.output import Output, counted
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client
from anabranch.common.errors import AnabranchError, BinaryNotFound, InvalidRequest, from_body

segstores = cyclopts.App(name="segstore", help="Tell the segment stores what to do.")
FLUSH_TIMEOUT_S = 60.0
JOURNAL_COLUMNS = (
    "file", "container", "first_sequence", "last_sequence", "frames", "bytes",
)  # fmt: skip
INSPECT_S_MAX = 600.0
_HERE = Connection()


def register(app: cyclopts.App) -> None:
    """Add the group to an application."""
    app.command(segstores)


@segstores.command(name="list")
def list_all(*, connection: Connection = _HERE) -> None:
    """List the segment stores that announced themselves: node id and address."""

    async def perform(client: Client, output: Output) -> None:
        found = await client.containers.list_nodes()
        output.rows(
            ("node", "endpoint"),
            [(one.node_id, f"{one.host}:{one.port}") for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


@segstores.command
def flush(*, timeout: float = FLUSH_TIMEOUT_S, connection: Connection = _HERE) -> None:
    """Move everything that is acknowledged to tier 2, and return when it is there.

    Parameters
    ----------
    timeout
        Seconds after which to give up waiting; what has begun goes on.
    """
    if not timeout > 0:
        raise InvalidRequest("a timeout must be positive", timeout=timeout)

    async def perform(client: Client, output: Output) -> None:
        flushed = await client.flush_to_tier2(timeout_s=timeout)
        output.done(
            f"flushed {counted(len(flushed), 'container')} to tier 2", {"flushed": list(flushed)}
        )

    run_with_client(connection, perform)


@segstores.command
def journal(directory: Path | None = None, /, *, connection: Connection = _HERE) -> int:
    """Read a store's journal, check every frame, and show what it holds; changes nothing.

    Needs no cluster. Ends with 1 if a store would refuse to open the journal, and says why.

    Parameters
    ----------
    directory
        The store's data directory; if not given: that of the cluster on this machine.
    """
    command = [sys.executable, "-m", "anabranch.segstore.inspect"]
    place = directory or connection.data_dir / "segstore"
    done = subprocess.run(
        [*command, str(place)], capture_output=True, timeout=INSPECT_S_MAX, check=False, text=True
    )
    if done.stderr:
        raise _told_error(done.stderr)
    lines: list[Mapping[str, object]] = [json.loads(line) for line in done.stdout.splitlines()]
    output = Output(connection.json)
    if connection.json:
        for line in lines:
            output.done("", line)
        return done.returncode
    rows = [line for line in lines if "container" in line]
    output.rows(
        JOURNAL_COLUMNS, [[str(row[name]) for name in JOURNAL_COLUMNS] for row in rows], rows
    )
    for line in lines:
        if "container" not in line:
            output.done(", ".join(f"{name} {value}" for name, value in line.items()), line)
    return done.returncode


def _told_error(stderr: str) -> AnabranchError:
    """What the program told on its last line, as it would have been raised here."""
    try:
        return from_body(json.loads(stderr.splitlines()[-1])["error"])
    except (ValueError, KeyError, TypeError):
        return BinaryNotFound(
            "the segment store's program cannot be run",
            remedy="pip install 'anabranch-cli[embedded]'",
            cause=stderr.strip()[-200:],
        )
