"""`connect`: opens a client of the cluster behind a NATS server or an HTTP gateway.

Each way imports its libraries only when it is used, because they are slow to load.
"""

from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from anabranch.client.client import Client
from anabranch.client.settings import ConnectionSettings
from anabranch.client.tracing import tracer_for
from anabranch.common.adapters.store_connection import SegmentStoreConnection
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng
from anabranch.common.runtime.nats_target import NatsTarget, nats_target

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

CONNECT_TIMEOUT_S = 10.0
HTTP = ("http://", "https://")


class Connecting:
    """The result of `connect`: await it for a Client, or enter it for an open one.

    ::

        client = await connect("nats://127.0.0.1:4222")
        event = await client.fetch(pointer)
        await client.close()
    """

    def __init__(
        self,
        where: NatsTarget | Path | str,
        name: str,
        timeout_s: float,
        tracer: "Tracer | None",
        *,
        token: str,
    ) -> None:
        self._where = where
        self._token = token
        self._name = name
        self._timeout_s = timeout_s
        self._tracer = tracer
        self._client: Client | None = None

    def __await__(self) -> Generator[object, None, Client]:
        return self._connect().__await__()

    async def _connect(self) -> Client:
        where = self._where
        if isinstance(where, str) and where.startswith(HTTP):
            return await self._to_gateway(where)
        return await self._to_nats(where)

    async def _to_nats(self, where: NatsTarget | Path | str) -> Client:
        from anabranch.client.wire.nats_control import NatsControlPlane
        from anabranch.common.adapters.nats_connection import connect_nats

        clock, ids, tracer = SystemClock(), SystemIds(), tracer_for(self._tracer)
        target = nats_target(where)
        connection = await connect_nats(target, self._name, deadline_s=self._timeout_s)
        return Client(
            NatsControlPlane(connection, clock=clock, ids=ids, tracer=tracer, token=self._token),
            clock=clock,
            ids=ids,
            rng=system_rng(),
            connections=ConnectionSettings(token=self._token),
            tracer=tracer,
        )

    async def _to_gateway(self, url: str) -> Client:
        from anabranch.client.wire.http_calls import GatewayCalls
        from anabranch.client.wire.http_control import HttpControlPlane

        clock, ids, tracer = SystemClock(), SystemIds(), tracer_for(self._tracer)
        calls = GatewayCalls(url, token=self._token)

        async def dial(connection: SegmentStoreConnection) -> None:
            from anabranch.client.wire.tunnel import dial_through

            await dial_through(calls, connection)

        try:
            await calls.reach(self._timeout_s)
        except BaseException:
            await calls.close()
            raise
        control = HttpControlPlane(calls, clock=clock, ids=ids, tracer=tracer)
        return Client(
            control,
            clock=clock,
            ids=ids,
            rng=system_rng(),
            connections=ConnectionSettings(token=self._token),
            tracer=tracer,
            dial=dial,
        )

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return await self._client.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._client is not None
        await self._client.__aexit__(kind, error, trace)


def connect(
    where: NatsTarget | Path | str,
    *,
    name: str = "anabranch-client",
    timeout_s: float = CONNECT_TIMEOUT_S,
    tracer: "Tracer | None" = None,
    token: str = "",
) -> Connecting:
    """Connect to the cluster behind a NATS server or an HTTP gateway.

    ::

        async with connect("nats://127.0.0.1:4222") as client:
            await client.scopes.create("plant")

    ``async with connect(Path("out/anabranch")) as client`` uses the data directory of `anabranch
    up` (or an endpoints file), ``connect("nats://user:password@host:4222")`` a URL, or several
    separated by commas, and ``connect(NatsTarget.at(url, credentials_file=…, tls=…))`` any other
    credentials. With the URL of a gateway, http:// or https://, the client needs no other address:
    it administers the cluster by HTTP requests, and reaches each segment store by a WebSocket
    through the gateway, which proxies in between must allow. `token` travels with every request;
    no service checks it yet. Requests and writes inside a sampled span of OpenTelemetry continue
    its trace, through `tracer` or through the tracer that the program set up before it connects.
    Raises Unavailable if nothing answers at the address in time, Unauthorized if the server refuses
    the credentials or their absence, InvalidSetting if `where` is malformed, CodecMissing if a
    `tracer` is given and OpenTelemetry is not installed.
    """
    return Connecting(where, name, timeout_s, tracer, token=token)
