"""One NATS connection per process, and its failures as the project's errors.

The connection reconnects without end. Meanwhile it buffers publications up to a bound and then
refuses them. Every request over it still needs a deadline of its own.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import nats.errors
from nats.aio.client import Client, Srv

from anabranch.common.adapters.nats_options import connect_options
from anabranch.common.errors import FieldValue, Unauthorized, Unavailable
from anabranch.common.runtime.logger import get_logger
from anabranch.common.runtime.nats_target import NatsTarget

CONNECT_DEADLINE_S = 10.0
RECONNECT_WAIT_S = 0.25
PENDING_SIZE_BYTES_MAX = 16 * 1024 * 1024
PING_INTERVAL_S = 10
ID_DEADLINE_S = 5.0
_WHO_AM_I = "$SYS.REQ.USER.INFO"
_REFUSED = "authorization violation"
_REMEDY = "check that the NATS server runs with JetStream and is reachable, then try again"

_log = get_logger(__name__)


class _StrictClient(Client):
    """The library's client with two additional rules, and with listeners for a lost connection.

    It closes a transport before it opens the next. If a server accepts a reconnect and the
    handshake fails, the library replaces the open stream and leaves it to the garbage collector:
    one socket per attempt. A proxy before a starting server accepts and hangs up until the server
    is ready.

    If the target requires TLS, it sends credentials only over TLS, whatever the server offers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_lost: list[Callable[[], None]] = []

    async def _connect_to_server(self, s: Srv) -> None:
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)

    def _connect_command(self) -> bytes:
        if "tls" in self.options and not self._server_info.get("tls_required"):
            assert self._current_server is not None
            if self._current_server.uri.scheme != "wss":
                raise nats.errors.Error("the server does not offer TLS")
        return super()._connect_command()


async def connect_nats(
    target: NatsTarget, name: str, *, deadline_s: float = CONNECT_DEADLINE_S
) -> Client:
    """Connect to a NATS server of the target, which shows the connection as `name`.

    If no server is up yet, the call waits for one until the deadline. Raises Unavailable,
    Unauthorized if a server refuses the target's credentials or their absence, InvalidSetting,
    CodecMissing.
    """
    options = connect_options(target)
    client = _StrictClient()
    attempts: list[Exception] | None = []
    """The last failed attempt until the first connection opens; then None."""

    async def report(error: Exception) -> None:
        if attempts is not None:
            attempts[:] = [error]
            if _REFUSED in str(error).lower():
                raise _refusal(target) from error
        await _report(error)

    async def report_loss() -> None:
        if not client.is_closed:
            _log.warning("the connection to NATS is lost, reconnecting", connection=name)
            for told in client.on_lost:
                told()

    try:
        async with asyncio.timeout(deadline_s):
            await client.connect(
                **options,
                name=name,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # seconds, any
                ping_interval=PING_INTERVAL_S,
                pending_size=PENDING_SIZE_BYTES_MAX,
                error_cb=report,
                disconnected_cb=report_loss,
                reconnected_cb=_report_return,
            )
    except BaseException as error:
        await client.close()
        if isinstance(error, nats.errors.Error | OSError | ValueError | TimeoutError):
            refusal = Unavailable("no NATS server answers", remedy=_REMEDY, url=str(target))
            if attempts:
                refusal.fields = {**refusal.fields, "cause": str(attempts[0]) or repr(attempts[0])}
            raise refusal from error
        raise
    attempts = None  # A server that restarts with other credentials may get the right ones back.
    return client


def when_lost(client: Client, told: Callable[[], None]) -> None:
    """Call `told` each time the connection is lost; answers to earlier messages may never come.

    `client` is one that `connect_nats` returned.
    """
    assert isinstance(client, _StrictClient)
    client.on_lost.append(told)


def _refusal(target: NatsTarget) -> Unauthorized:
    if target.credentials is None:
        return Unauthorized(
            "the NATS server requires credentials, and none were given",
            remedy="name the cluster's data directory or endpoints file instead of the URL, or put "
            "user and password into the URL",
            url=str(target),
        )
    return Unauthorized(
        "the NATS server refuses the credentials",
        remedy="give the credentials of this server; those of `anabranch up` are in its data "
        "directory",
        url=str(target),
    )


async def close_nats(client: Client) -> None:
    """Close the connection in any state; unsent messages may be lost.

    The client flushes them to the transport, which fails while the client reconnects.
    """
    try:
        await client.close()
    except (nats.errors.Error, OSError, RuntimeError) as error:
        _log.info("the connection to NATS was already lost when it was closed", error=repr(error))


def is_clustered(client: Client) -> bool:
    """Whether the connected server is part of a cluster, so that streams may have replicas.

    A server becomes part of a cluster only by a restart, and then clients connect again.
    """
    return bool(client._server_info.get("cluster"))  # noqa: SLF001 - it has no other name


async def server_id(client: Client) -> str:
    """The id of the server that the client is connected to. Raises Unavailable."""
    with as_unavailable("tell its id"):
        answer = await client.request(_WHO_AM_I, timeout=ID_DEADLINE_S)
    return str(json.loads(answer.data)["server"]["id"])


async def _report(error: Exception) -> None:
    # While the server is away, each failed attempt calls this; the loss was logged once.
    report = _log.debug if isinstance(error, OSError) else _log.warning
    report("the NATS client reported an error", error=repr(error))


async def _report_return() -> None:
    _log.info("the connection to NATS is restored")


@contextmanager
def keeping_cancellation() -> Iterator[None]:
    """Raise CancelledError at the end of a block that swallowed a cancellation.

    The NATS client waits by `asyncio.wait_for`, which before Python 3.12 returns the result and
    drops the cancellation if both come in the same turn of the loop. The client also turns a
    cancellation on a closed connection into an error. A task that loops over such calls would never
    end. A cancellation from before the block was delivered already, so cleanup code may still use
    the block.
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
    """Turn errors of the NATS client in the block into Unavailable: `action` was not done."""
    try:
        with keeping_cancellation():
            yield
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unavailable(
            f"NATS did not {action}", remedy=_REMEDY, cause=str(error) or repr(error), **fields
        ) from error
