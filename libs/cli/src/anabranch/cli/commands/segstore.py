"""The commands `anabranch segstore …`."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from json import loads
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, Shown, run_with_client
from anabranch.cli.waiting_line import waiting
from anabranch.client import Client
from anabranch.common.errors import AnabranchError, BinaryNotFound, InvalidRequest, from_body

FLUSH_TIMEOUT_S = 60.0
JOURNAL_COLUMNS = (
    "file", "container", "first_sequence", "last_sequence", "frames", "bytes",
)  # fmt: skip
PROGRAM_S_MAX = 600.0
_HERE = Connection()
_SHOWN = Shown()


def flush(*, timeout: float = FLUSH_TIMEOUT_S, connection: Connection = _HERE) -> None:
    """Move all acknowledged data to tier 2, and return when it is there.

    Parameters
    ----------
    timeout
        Seconds to wait; flushes that have begun continue.
    """
    if not timeout > 0:
        raise InvalidRequest("a timeout must be positive", timeout=timeout)

    async def perform(client: Client, output: Output) -> None:
        with waiting("moving data to tier 2"):
            flushed = await client.cluster.flush_to_tier2(timeout_s=timeout)
        output.done(
            f"flushed {counted(len(flushed), 'container')} to tier 2", {"flushed": list(flushed)}
        )

    run_with_client(connection, perform)


def journal(directory: Path | None = None, /, *, connection: Connection = _HERE) -> int:
    """Read a store's journal, check every frame, and show its contents; change nothing.

    Needs no cluster. Ends with 1, and the reason, if a store would refuse to open the journal.

    Parameters
    ----------
    directory
        The store's data directory; by default the one of the cluster on this machine.
    """
    place = directory or connection.target.data_dir / "segstore"
    lines, status = _run_program("inspect", [str(place)])
    output = Output(connection.form)
    if output.for_programs:
        for line in lines:
            output.done("", line)
        return status
    rows = [line for line in lines if "container" in line]
    output.rows(
        JOURNAL_COLUMNS, [[str(row[name]) for name in JOURNAL_COLUMNS] for row in rows], rows
    )
    _tell(output, [line for line in lines if "container" not in line])
    return status


def repair(
    directory: Path,
    /,
    *,
    yes: Annotated[bool, Parameter(negative="")] = False,
    tier2: str = "",
    shown: Shown = _SHOWN,
) -> int:
    """Make the damaged journal of a stopped store usable, without the data behind the damage.

    Shows the damage, the files that a repair cuts or sets aside, and the operations that it loses.
    Ends with 1 while a repair is needed.

    Parameters
    ----------
    directory
        The store's data directory; no store may run on it.
    yes
        Repair. The command first copies the changed files to a folder beside the journal.
    tier2
        URL of tier 2, e.g. file:///var/lib/anabranch/tier2, to show the operations that are in it.
    """
    chosen = [str(directory), *(["--tier2", tier2] if tier2 else []), *(["--yes"] if yes else [])]
    lines, status = _run_program("repair", chosen)
    _tell(Output(shown.form), lines)
    return status


def _run_program(name: str, arguments: list[str]) -> tuple[list[Mapping[str, object]], int]:
    """Run a program of the segment store; returns its lines and its exit status.

    Raises the program's error, and BinaryNotFound if it is not installed.
    """
    command = [sys.executable, "-P", "-m", f"anabranch.segstore.{name}", *arguments]
    with waiting("reading the journal"):
        done = subprocess.run(
            command, capture_output=True, timeout=PROGRAM_S_MAX, check=False, text=True
        )
    if done.stderr:
        raise _told_error(done.stderr)
    return [loads(line) for line in done.stdout.splitlines()], done.returncode


def _tell(output: Output, lines: Iterable[Mapping[str, object]]) -> None:
    for line in lines:
        output.done(", ".join(f"{name} {value}" for name, value in line.items()), line)


def _told_error(stderr: str) -> AnabranchError:
    """The error on the program's last line, as if it had been raised here."""
    try:
        return from_body(loads(stderr.splitlines()[-1])["error"])
    except (ValueError, KeyError, TypeError):
        return BinaryNotFound(
            "the segment store's program cannot be run",
            remedy="pip install 'anabranch-cli[embedded]'",
            cause=stderr.strip()[-200:],
        )
