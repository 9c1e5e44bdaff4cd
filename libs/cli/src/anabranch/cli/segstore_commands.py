"""The commands `anabranch segstore …`."""

import cyclopts

from anabranch.cli.output import Output, counted
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client
from anabranch.common.errors import InvalidRequest

segstores = cyclopts.App(name="segstore", help="Tell the segment stores what to do.")
FLUSH_TIMEOUT_S = 60.0
_HERE = Connection()


def register(app: cyclopts.App) -> None:
    """Add the group to an application."""
    app.command(segstores)


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
