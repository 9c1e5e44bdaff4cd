"""Scripts on a Redis server: decided there, under its own clock, one call at a time each.

A connection is used by one call at a time. A call that does not come to its end, because its
deadline or its caller's cancellation came first, drops the connection: the late reply would
otherwise be read as the answer to the next call. Nothing is sent before the first call.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Connection
from redis.asyncio.connection import parse_url
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from anabranch.common.errors import InvalidSetting, Unavailable

CALL_S_MAX = 1.0
PROTOCOL = 3


class RedisScripts:
    """Calls of scripts. `remedy`: what to do while the server does not answer; `idle_max`: how many
    connections are kept for later calls. Raises InvalidSetting for a URL that names no Redis."""

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
        """The script's answer. Raises Unavailable; then it may have run or not."""
        connection = self._idle.pop() if self._idle else self._fresh()
        try:
            async with asyncio.timeout(self._call_s_max):
                await connection.connect()  # type: ignore[no-untyped-call]
                await connection.send_command("EVAL", script, len(keys), *keys, *arguments)
                answer = await connection.read_response()
        except (RedisError, OSError, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            raise Unavailable(
                "Redis does not answer", remedy=self._remedy, cause=str(error) or repr(error)
            ) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        await self._keep(connection)
        return answer

    async def close(self) -> None:
        """Drop the connections; repeatable."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    def _fresh(self) -> Connection:
        connection: Connection = self._kind(
            **self._target,
            protocol=self._protocol,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
        )
        return connection

    async def _keep(self, connection: Connection) -> None:
        """For later calls; more than some, of calls at the same time, are not needed."""
        if len(self._idle) < self._idle_max:
            self._idle.append(connection)
        else:
            await connection.disconnect(nowait=True)
