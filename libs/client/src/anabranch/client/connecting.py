"""`connect`: the way to a client of the cluster behind a NATS server."""

from collections.abc import Generator
from pathlib import Path
from types import TracebackType

from opentelemetry.trace import Tracer

from anabranch.client.client import Client
from anabranch.client.tracing import tracer_of_program
from anabranch.client.wire.nats_control import NatsControlPlane
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng
from anabranch.common.runtime.nats_target import NatsTarget, nats_target

CONNECT_TIMEOUT_S = 10.0


class Connecting:
    """What `connect` returns: await it for a Client, or enter it for an open one."""

    def __init__(
        self, where: NatsTarget | Path | str, name: str, timeout_s: float, tracer: Tracer | None
    ) -> None:
        self._where = where
        self._name = name
        self._timeout_s = timeout_s
        self._tracer = tracer
        self._client: Client | None = None

    def __await__(self) -> Generator[object, None, Client]:
        return self._connect().__await__()

    async def _connect(self) -> Client:
        clock, ids = SystemClock(), SystemIds()
        target = nats_target(self._where)
        connection = await connect_nats(target, self._name, deadline_s=self._timeout_s)
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
    where: NatsTarget | Path | str,
    *,
    name: str = "anabranch-client",
    timeout_s: float = CONNECT_TIMEOUT_S,
    tracer: Tracer | None = None,
) -> Connecting:
    """Connect to the cluster behind a NATS server.

    ``async with connect(Path("out/anabranch")) as client`` uses the data directory of `anabranch
    up` (or an endpoints file), ``connect("nats://user:password@host:4222")`` a URL, several of them
    separated by commas, and ``connect(NatsTarget.at(url, credentials_file=…, tls=…))`` the rest.
    What is asked and written inside a sampled span of OpenTelemetry continues its trace, by
    `tracer` or else by the one that the program has set up before it connects.
    Raises Unavailable when nothing answers at the address in time, Unauthorized when the server
    refuses the credentials or their absence, InvalidSetting when `where` cannot be understood.
    """
    return Connecting(where, name, timeout_s, tracer)
