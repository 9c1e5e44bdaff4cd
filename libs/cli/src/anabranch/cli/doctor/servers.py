"""The sources about NATS, Redis, the gateway, and the services' health ports.

The connection to NATS opens when a check needs it first; it closes with the stack.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from nats.aio.client import Client

from anabranch.cli.doctor.decisions.nats import Account, Monitored, NatsServer, StreamsKept
from anabranch.cli.doctor.decisions.services import Service
from anabranch.cli.doctor.decisions.shared_logs import ServerSeen
from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.once import Once
from anabranch.cli.doctor.place import NO_CLUSTER, Place
from anabranch.cli.doctor.sources import nats_server, redis_server, services
from anabranch.cli.doctor.sources.clock import http_date_bound
from anabranch.cli.doctor.sources.http_get import get
from anabranch.cli.doctor.sources.nats_monitor import seen
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.eventsourcing.store_clock import Bound
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.workflow.bounded import for_each

CONNECT_S_MAX = 3.0
ASKED_AT_ONCE_MAX = 8
NAME = "anabranch-doctor"


class Servers:
    """Each public attribute is a source."""

    def __init__(self, place: Place, clock: Clock, stack: AsyncExitStack) -> None:
        self._place = place
        self._clock = clock
        self._stack = stack
        self._connection = Once(self._connect)
        self.nats = Once(self._nats)
        self.nats_clock = Once(self._nats_clock)
        self.account = Once(self._account)
        self.streams = Once(self._streams)
        self.seen = Once(self._seen)
        self.monitored = Once(self._monitored)
        self.redis = Once(self._redis)
        self.gateway = Once(self._gateway)
        self.gateway_clock = Once(self._gateway_clock)
        self.services = Once(self._services)

    # --- NATS -----------------------------------------------------------------------------

    async def _connect(self) -> Client:
        try:
            target = nats_target(self._where())
            connection = await connect_nats(target, NAME, deadline_s=CONNECT_S_MAX)
        except AnabranchError as error:
            why = f"NATS cannot be reached: {error.message}"
            raise CannotLook(why, error.remedy_for("command")) from error
        self._stack.push_async_callback(close_nats, connection)
        return connection

    def _where(self) -> str:
        target, found = self._place.target, self._place.directory
        if target is None:
            raise CannotLook("only this machine is looked at")
        if self._place.absent:
            raise CannotLook(NO_CLUSTER)
        if not target.context.http:
            return target.address
        if self._place.data_dir is not None and found.published:
            return str(self._place.data_dir.absolute())
        raise CannotLook("a gateway does not show NATS", "name the cluster by --nats or --data-dir")

    async def _nats(self) -> NatsServer:
        return await nats_server.nats_server(await self._connection(), self._clock)

    async def _nats_clock(self) -> Bound:
        bound = (await self.nats()).clock
        if bound is None:
            raise CannotLook("the NATS server took too long to tell its time")
        return bound

    async def _account(self) -> Account:
        return await nats_server.account(await self._connection())

    async def _streams(self) -> StreamsKept:
        found = await nats_server.streams(await self._connection())
        return StreamsKept(found, (await self.nats()).clustered)

    async def _seen(self) -> tuple[ServerSeen, ...]:
        """Every NATS server whose monitoring port is known, in that order."""
        urls = [url for url in self._place.nats_monitor.split(",") if url]
        if not urls:
            raise self._place.out_of_reach(
                "the NATS monitoring port is not known; controllers check it when they start",
                "name it with --nats-monitor http://host:8222",
            )
        found: dict[str, ServerSeen] = {}

        async def look(url: str) -> None:
            found[url] = await seen(url)

        await for_each(urls, ASKED_AT_ONCE_MAX, look)
        return tuple(found[url] for url in urls)

    async def _monitored(self) -> Monitored:
        """The server behind the connection, or the first one that answers."""
        found = await self.seen()
        answering = [one for one in found if not one.problem]
        if not answering:
            raise Unavailable(
                f"the monitoring port of NATS does not answer: {found[0].problem}",
                remedy="start the NATS server, or correct --nats-monitor",
            )
        try:
            connected = (await self.nats()).server_id
        except CannotLook:
            connected = ""
        mine = [one for one in answering if one.status.get("server_id") == connected]
        if not mine and len(found) > len(answering):
            raise CannotLook("the monitoring port of the connected NATS server does not answer")
        return Monitored((mine or answering)[0].status, connected)

    # --- Redis, gateway, health ports -----------------------------------------------------

    async def _redis(self) -> Mapping[str, str]:
        if not self._place.redis:
            raise self._place.out_of_reach(
                "no Redis server is known", "name it with --redis, if the cluster has one"
            )
        return await redis_server.redis_info(self._place.redis)

    async def _gateway(self) -> Service:
        return await services.service("the gateway", self._gateway_url())

    async def _gateway_clock(self) -> Bound:
        sent_ms = self._clock.now_ms()
        answer = await get(f"{self._gateway_url().rstrip('/')}/ping")
        read_ms = self._clock.now_ms()
        try:
            return http_date_bound(answer.headers["date"], sent_ms, read_ms)
        except (KeyError, ValueError, TypeError) as error:
            raise CannotLook("the gateway tells no date") from error

    def _gateway_url(self) -> str:
        if not self._place.gateway:
            raise self._place.out_of_reach("no gateway is known", "name it with --http")
        return self._place.gateway

    async def _services(self) -> tuple[Service, ...]:
        known = dict(self._place.health)
        if not known and self._place.gateway:
            known = {"gateway": self._place.gateway}
        if not known:
            raise self._place.out_of_reach(
                "no health port is known", "name the services' with --health http://host:port"
            )
        return await services.services(known)
