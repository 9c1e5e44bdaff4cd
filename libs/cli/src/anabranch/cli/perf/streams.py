"""The stream of a measurement: one that the user names, or one of its own.

A measurement without a named stream creates ``perf/<kind>-<random>`` and deletes it at the end, and
the scope ``perf`` with it if the measurement created that. A named stream keeps the events.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.client import Client, ScopeExists, ScopeNotEmpty, ScopeNotFound
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.ids import IdSource, SystemIds

SCOPE = "perf"
CHANGE_TIMEOUT_S = 15.0
ID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """`named`: the user's stream, or None. `kind` and `segments` are those of an own stream, and
    `keep` leaves it in place."""

    named: str | None
    kind: str
    segments: int
    keep: bool = False


@asynccontextmanager
async def measured_stream(
    client: Client, wanted: Wanted, output: Output, ids: IdSource | None = None
) -> AsyncIterator[str]:
    """The name of the stream, which exists within the block; stderr says whether it stays.

    Raises StreamNotFound for a named stream, and the errors of creating an own one.
    """
    if wanted.named is not None:
        await client.streams.describe(wanted.named)
        _say(output, wanted.named, f"stream {wanted.named} keeps the events of this measurement")
        yield wanted.named
        return
    name = f"{SCOPE}/{wanted.kind}-{(ids or SystemIds()).new_id()[:ID_LENGTH]}"
    made_scope = await _create(client, name, wanted.segments)
    fate = "it stays" if wanted.keep else "it is deleted at the end"
    segments = counted(wanted.segments, "segment")
    _say(output, name, f"created stream {name} with {segments}; {fate}")
    try:
        yield name
    finally:
        if not wanted.keep:
            await _delete(client, name, output, made_scope=made_scope)


async def _create(client: Client, name: str, segments: int) -> bool:
    """Create the stream; returns whether its scope had to be created too."""
    try:
        await client.streams.create(name, segments=segments)
    except ScopeNotFound:
        made = await _made_scope(client)
        await client.streams.create(name, segments=segments)
        return made
    return False


async def _made_scope(client: Client) -> bool:
    try:
        await client.scopes.create(SCOPE)
    except ScopeExists:
        return False
    return True


async def _delete(client: Client, name: str, output: Output, *, made_scope: bool) -> None:
    try:
        await client.streams.seal(name, timeout_s=CHANGE_TIMEOUT_S)
        await client.streams.delete(name, timeout_s=CHANGE_TIMEOUT_S)
        if made_scope:
            await client.scopes.delete(SCOPE, timeout_s=CHANGE_TIMEOUT_S)
    except ScopeNotEmpty:
        return  # another measurement uses it
    except AnabranchError as error:
        remedy = f"delete it: anabranch stream seal {name}, then anabranch stream delete {name}"
        _say(output, name, f"stream {name} may be left behind ({error}); {remedy}")


def _say(output: Output, stream: str, text: str) -> None:
    output.progress(text, {"event": "remark", "stream": stream, "text": text})
