"""Scripts on a Redis server, which runs each one atomically and under its own clock.

One call at a time uses a connection. If a call ends early, by its deadline or by its caller's
cancellation, it drops the connection: the next call would otherwise read the late reply as its own
answer. The first call connects.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Connection
from redis.asyncio.connection import parse_url
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from anabranch.common.errors import InvalidSetting, OutcomeUnknown, Unavailable

CALL_S_MAX = 1.0
PROTOCOL = 3


class RedisScripts:
    """Calls scripts on one server.

    `remedy`: the remedy of the error while the server does not answer. `idle_max`: the number of
    connections kept for later calls. Raises InvalidSetting if the URL does not name a Redis server.
    """

    def __init__(
        self,
        url: str,
        remedy: str,
        *,
        protocol: int = PROTOCOL,
        call_s_max: float = CALL_S_MAX,
        idle_max: int = 1,
    ) -> None:
        try:
            self._target: dict[str, Any] = dict(parse_url(url))
        except ValueError as error:
            raise InvalidSetting(
                "not the URL of a Redis server", remedy="write it as redis://host:6379"
            ) from error
        self._kind = self._target.pop("connection_class", Connection)
        self._remedy = remedy
        self._protocol = protocol
        self._call_s_max = call_s_max
        self._idle_max = idle_max
        self._idle: list[Connection] = []

    async def call(self, script: str, keys: Sequence[str], *arguments: str) -> object:
        """Run the script and return its answer. Raises Unavailable; it may then have run."""
        try:
            return await self.run(script, keys, *arguments)
        except OutcomeUnknown as error:
            raise Unavailable(error.message, remedy=self._remedy, **error.fields) from error

    async def run(self, script: str, keys: Sequence[str], *arguments: str | bytes) -> object:
        """Run the script and return its answer.

        Raises Unavailable (it did not run), OutcomeUnknown (it may have run).
        """
        return await self.send("EVAL", script, len(keys), *keys, *arguments)

    async def send(self, *words: str | bytes | int) -> object:
        """Send one command and return its answer. Raises Unavailable, OutcomeUnknown, as `run`."""
        connection = self._idle.pop() if self._idle else self.fresh()
        is_sent = False
        try:
            async with asyncio.timeout(self._call_s_max):
                await connection.connect()  # type: ignore[no-untyped-call]
                is_sent = True
                await connection.send_command(*words)
                answer = await connection.read_response()
        except (RedisError, OSError, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            is_unknown = is_sent and not isinstance(error, ResponseError)
            kind = OutcomeUnknown if is_unknown else Unavailable
            raise kind(
                "Redis does not answer", remedy=self._remedy, cause=str(error) or repr(error)
            ) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        await self._keep(connection)
        return answer

    async def close(self) -> None:
        """Drop the connections. Repeatable."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    def fresh(self) -> Connection:
        """A connection of its own, not yet open; its owner disconnects it."""
        connection: Connection = self._kind(
            **self._target,
            protocol=self._protocol,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
        )
        return connection

    async def _keep(self, connection: Connection) -> None:
        """Keep the connection for later calls, or drop it if `idle_max` are kept already."""
        if len(self._idle) < self._idle_max:
            self._idle.append(connection)
        else:
            await connection.disconnect(nowait=True)
