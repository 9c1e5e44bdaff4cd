"""Creates streams and key-value buckets, and adapts present ones to what is wanted of them.

A present stream keeps its settings, with these exceptions: it may get more replicas, more messages
per subject, and batches. None of them is ever reduced: an operator may have set more.
"""

import json
from collections.abc import Mapping
from typing import Any

import nats.js.errors
from nats.aio.client import Client
from nats.js.api import StreamConfig

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.model.nats_server import serving_servers

REQUEST_S_MAX = 5.0
CREATE_S_MAX = 10.0
"""The servers of a cluster choose a leader for a new stream before they answer."""
RAISED = ("num_replicas", "max_msgs_per_subject")
"""Settings of a stream that are raised to what is wanted; 0 or less means without a limit."""


async def ensure_stream(client: Client, wanted: StreamConfig) -> tuple[str, ...]:
    """Create the stream, or raise the settings of the present one; return the names of
    the servers that store it.

    Idempotent. Raises Unavailable, also while the servers choose a leader.
    """
    name = wanted.name
    assert name is not None
    js = client.jetstream(timeout=CREATE_S_MAX)
    with as_unavailable("create the stream", stream=name):
        found = await _described(client, name)
        if found is None:
            await js.add_stream(wanted)
            found = await _described(client, name)
            if found is None:
                raise nats.js.errors.NotFoundError(description="the new stream is not found")
        changes = needed_changes(found["config"], wanted)
        if changes:
            answer = await client.request(
                f"$JS.API.STREAM.UPDATE.{name}",
                json.dumps({**found["config"], **changes}).encode(),
                timeout=CREATE_S_MAX,
            )
            found = _checked(json.loads(answer.data))
    return servers_of(found, client)


def needed_changes(present: Mapping[str, Any], wanted: StreamConfig) -> dict[str, Any]:
    """The settings to change, by their names on the wire."""
    changes: dict[str, Any] = {}
    if wanted.allow_atomic and not present.get("allow_atomic"):
        changes["allow_atomic"] = True
    for setting in RAISED:
        least = getattr(wanted, setting) or 0
        if 0 < present.get(setting, 0) < least:
            changes[setting] = least
    return changes


def servers_of(described: Mapping[str, Any], client: Client) -> tuple[str, ...]:
    """The names of the servers that now store what the described stream takes."""
    own = client._server_info.get("server_name", "")  # noqa: SLF001 - it has no other name
    return serving_servers(described) or (str(own),)


async def _described(client: Client, name: str) -> dict[str, Any] | None:
    answer = await client.request(f"$JS.API.STREAM.INFO.{name}", timeout=REQUEST_S_MAX)
    try:
        return _checked(json.loads(answer.data))
    except nats.js.errors.NotFoundError:
        return None


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of the server. Raises APIError, NotFoundError."""
    if (error := answer.get("error")) is not None:
        raise nats.js.errors.APIError.from_error(error)
    return answer
