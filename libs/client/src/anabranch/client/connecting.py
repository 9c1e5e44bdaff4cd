"""`connect`: the way to a client of the cluster behind a NATS server."""

from collections.abc import Generator
from types import TracebackType

from opentelemetry.trace import Tracer

from anabranch.client.client import Client
from anabranch.client.tracing import tracer_of_program
from anabranch.client.wire.nats_control import NatsControlPlane
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng

CONNECT_TIMEOUT_S = 10.0


class Connecting:
    """What `connect` returns: await it for a Client, or enter it for an open one."""

    def __init__(self, nats_url: str, name: str, timeout_s: float, tracer: Tracer | None) -> None:
        self._nats_url = nats_url
        self._name = name
        self._timeout_s = timeout_s
        self._tracer = tracer
        self._client: Client | None = None

    def __await__(self) -> Generator[object, None, Client]:
        return self._connect().__await__()

    async def _connect(self) -> Client:
        clock, ids = SystemClock(), SystemIds()
        connection = await connect_nats(self._nats_url, self._name, deadline_s=self._timeout_s)
        tracer = self._tracer or tracer_of_program()
        control = NatsControlPlane(connection, clock=clock, ids=ids, tracer=tracer)
        return Client(control, clock=clock, ids=ids, rng=system_rng(), tracer=tracer)

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
    nats_url: str,
    *,
    name: str = "anabranch-client",
    timeout_s: float = CONNECT_TIMEOUT_S,
    tracer: Tracer | None = None,
) -> Connecting:
    """Connect to the cluster behind a NATS server.

    ``async with connect(url) as client`` or ``async with await connect(url) as client``.
    What is asked and written inside a sampled span of OpenTelemetry continues its trace, by
    `tracer` or else by the one that the program has set up before it connects.
    Raises Unavailable when nothing answers at the address in time.
    """
    return Connecting(nats_url, name, timeout_s, tracer)
