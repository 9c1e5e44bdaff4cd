"""One NATS connection per process, and its failures in the project's words.

The connection reconnects for ever; what is published meanwhile is buffered up to a bound and
then refused. Every request made over it still needs a deadline of its own.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

import nats.errors
from nats.aio.client import Client, Srv

from anabranch.common.errors import FieldValue, Unavailable
from anabranch.common.runtime.logger import get_logger

CONNECT_DEADLINE_S = 10.0
RECONNECT_WAIT_S = 0.25
PENDING_SIZE_BYTES_MAX = 16 * 1024 * 1024
PING_INTERVAL_S = 10
ID_DEADLINE_S = 5.0
_WHO_AM_I = "$SYS.REQ.USER.INFO"
_REMEDY = "check that the NATS server runs with JetStream and is reachable, then try again"

_log = get_logger(__name__)


class _OneTransportClient(Client):
    """The library's client, which here closes one transport before it opens the next.

    When a server accepts an attempt to reconnect and the handshake fails, the library replaces
    the open stream and leaves it to the garbage collector: one socket per attempt. A proxy before
    a server that starts accepts and hangs up for as long as that takes.
    """

    async def _connect_to_server(self, s: Srv) -> None:
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)


async def connect_nats(url: str, name: str, *, deadline_s: float = CONNECT_DEADLINE_S) -> Client:
    """A connection to the NATS server at `url`, shown there as `name`.

    A server that is not up yet is waited for, up to the deadline. Raises Unavailable.
    """
    client = _OneTransportClient()

    async def report_loss() -> None:
        if not client.is_closed:
            _log.warning("the connection to NATS is lost, reconnecting")

    try:
        async with asyncio.timeout(deadline_s):
            await client.connect(
                servers=url,
                name=name,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # seconds, any
                ping_interval=PING_INTERVAL_S,
                pending_size=PENDING_SIZE_BYTES_MAX,
                error_cb=_report,
                disconnected_cb=report_loss,
                reconnected_cb=_report_return,
            )
    except BaseException as error:
        await client.close()
        if isinstance(error, nats.errors.Error | OSError | ValueError | TimeoutError):
            raise Unavailable("no NATS server answers", remedy=_REMEDY, url=url) from error
        raise
    return client


async def close_nats(client: Client) -> None:
    """Close the connection, whatever state it is in; what waits to be sent may be lost.

    The client writes it to the transport, which fails if that is gone while it reconnects.
    """
    try:
        await client.close()
    except (nats.errors.Error, OSError, RuntimeError) as error:
        _log.info("the connection to NATS was already lost when it was closed", error=repr(error))


async def server_id(client: Client) -> str:
    """The id of the server that the client is connected to. Raises Unavailable."""
    with as_unavailable("tell its id"):
        answer = await client.request(_WHO_AM_I, timeout=ID_DEADLINE_S)
    return str(json.loads(answer.data)["server"]["id"])


async def _report(error: Exception) -> None:
    # While the server is away each attempt ends here; the loss itself was logged once.
    report = _log.debug if isinstance(error, OSError) else _log.warning
    report("the NATS client reported an error", error=repr(error))


async def _report_return() -> None:
    _log.info("the connection to NATS is restored")


@contextmanager
def keeping_cancellation() -> Iterator[None]:
    """Raises CancelledError at the end of a block that swallowed a cancellation.

    The NATS client waits by `asyncio.wait_for`, which before Python 3.12 returns the result and
    drops the cancellation when both come in the same turn of the loop, and it turns a
    cancellation on a closed connection into an error. A task that loops over such calls would
    never end. A cancellation from before the block was delivered already: whoever cleans up
    after it may go on calling.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


@contextmanager
def as_unavailable(action: str, **fields: FieldValue) -> Iterator[None]:
    """Turns what the NATS client raises inside into Unavailable: `action` was not done."""
    try:
        with keeping_cancellation():
            yield
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unavailable(
            f"NATS did not {action}", remedy=_REMEDY, cause=str(error) or repr(error), **fields
        ) from error
