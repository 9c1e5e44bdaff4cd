"""The stream of a write: found, or created when the options ask for it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from anabranch.client.client import Client
from anabranch.common.errors import Busy, ScopeExists, ScopeNotFound, StreamExists, StreamNotFound
from anabranch.common.model.names import StreamRef
from anabranch.spark.options.creation import SWITCH
from anabranch.spark.options.write import WriteOptions

T = TypeVar("T")
CREATION_PAUSE_S = 0.1
CREATION_LOOKS_MAX = 100


async def require_target(client: Client, options: WriteOptions) -> None:
    """Look whether the target exists, and create a missing stream if asked.

    Raises TopicNotFound, and as `creating`.
    """
    if not isinstance(options.target, StreamRef):
        await client.topics.describe(options.target)
        return
    stream = options.target
    await creating(client, options, lambda: client.streams.describe(str(stream)))


async def creating(client: Client, options: WriteOptions, use: Callable[[], Awaitable[T]]) -> T:
    """The result of `use`, which needs the stream; a missing stream is created if asked.

    Any number of tasks may do so at once. Raises StreamNotFound or ScopeNotFound, with the option
    as the remedy, and the errors of `use`.
    """
    for _ in range(CREATION_LOOKS_MAX):
        try:
            return await use()
        except (StreamNotFound, ScopeNotFound) as error:
            if options.create is None:
                raise type(error)(
                    error.message,
                    remedy=f"create it, or add the option {SWITCH}=true", **error.fields,
                ) from error  # fmt: skip
        await _create(client, options)
    return await use()


async def _create(client: Client, options: WriteOptions) -> None:
    try:
        await client.streams.create(str(options.stream), options.create)
    except ScopeNotFound:
        with suppress(ScopeExists, Busy):
            await client.scopes.create(options.stream.scope)
    except (StreamExists, Busy):  # another task creates it
        await asyncio.sleep(CREATION_PAUSE_S)
