"""The commands `anabranch controller …`: maintenance of the metadata that controllers keep in NATS.

Only the controller knows the meaning of a subject, so its program does the work in a process.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from json import loads
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.cli.session import Connection
from anabranch.cli.waiting_line import waiting
from anabranch.common.errors import AnabranchError, BinaryNotFound, InvalidRequest, from_body

PROGRAM_S_MAX = 3600.0
_HERE = Connection()


def backup(url: str, /, *, connection: Connection = _HERE) -> int:
    """Write all metadata to a directory or bucket, while the cluster runs.

    Parameters
    ----------
    url
        The target: file:///absolute/directory or s3://bucket/prefix. Earlier backups stay.
    """
    return _perform(connection, ["backup", url])


def restore(url: str, /, *, backup: str = "", connection: Connection = _HERE) -> int:
    """Fill an empty NATS server with the metadata of a backup, before any controller starts.

    Parameters
    ----------
    url
        The place of the backup.
    backup
        Its name; by default the newest finished one.
    """
    return _perform(connection, ["restore", url, *(["--backup", backup] if backup else [])])


def verify(*, connection: Connection = _HERE) -> int:
    """Read all metadata as a controller would, and list the damage; change nothing.

    Ends with 1 if something is damaged and no later snapshot has healed it.
    """
    return _perform(connection, ["verify"])


def repair(
    subject: str,
    /,
    *,
    from_backup: str = "",
    yes: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> int:
    """Bring a damaged scope or stream back to the last state that can be trusted.

    Shows that state and the decisions that a repair gives up. Ends with 1 while a repair is
    needed.

    Parameters
    ----------
    subject
        The subject, as `anabranch controller verify` lists it.
    from_backup
        URL of a backup whose messages replace those that cannot be read.
    yes
        Append that state as a snapshot. Nothing is deleted.
    """
    chosen = [*(["--from-backup", from_backup] if from_backup else []), *(["--yes"] if yes else [])]
    return _perform(connection, ["repair", subject, *chosen])


def _perform(connection: Connection, arguments: list[str]) -> int:
    """Run the controller's program and print its lines; returns its exit status, or raises."""
    target = connection.target
    if target.context.http:
        raise InvalidRequest(
            "the HTTP gateway does not serve this command",
            remedy="name the cluster by --nats or --data-dir",
            http=target.context.http,
        )
    command = [sys.executable, "-P", "-m", "anabranch.controller.metadata", *arguments]
    # Not as an argument: a URL may contain a password, and other users see arguments.
    environment = {**os.environ, "ANABRANCH_NATS_URL": target.address}
    with waiting("reading and writing metadata"):
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=PROGRAM_S_MAX,
            check=False,
            text=True,
            env=environment,
        )
    output = Output(connection.form)
    for line in done.stdout.splitlines():
        record: Mapping[str, object] = loads(line)
        output.done(", ".join(f"{name} {value}" for name, value in record.items()), record)
    if done.returncode and done.stderr:
        raise _told_error(done.stderr)
    return done.returncode


def _told_error(stderr: str) -> AnabranchError:
    """The error on the program's last line, as if it had been raised here."""
    try:
        return from_body(loads(stderr.splitlines()[-1])["error"])
    except (ValueError, KeyError, TypeError):
        return BinaryNotFound(
            "the controller's program cannot be run",
            remedy="pip install 'anabranch-cli[embedded]'",
            cause=stderr.strip()[-200:],
        )
