"""JetStream's configuration from the monitoring ports of the NATS servers."""

import json
from collections.abc import Mapping

from anabranch.cli.doctor.decisions.shared_logs import ServerSeen
from anabranch.cli.doctor.sources.http_get import get, without_login
from anabranch.common.errors import InvalidSetting, Unavailable


async def jetstream_status(url: str) -> Mapping[str, object]:
    """The answer to ``/jsz?config=1``. Raises Unavailable, InvalidSetting."""
    answer = await get(f"{url.rstrip('/')}/jsz?config=1")
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if answer.status != 200 or not isinstance(found, dict):
        raise InvalidSetting(
            "the server at this address is not the monitoring port of NATS",
            remedy="correct --nats-monitor",
            url=without_login(url),
            status=answer.status,
        )
    return found


async def seen(url: str) -> ServerSeen:
    """The server at this monitoring port; its `problem` says why it does not answer.

    Raises InvalidSetting if another program answers.
    """
    place = without_login(url).rpartition("://")[2].strip("/")
    try:
        return ServerSeen(place, await jetstream_status(url))
    except Unavailable as error:
        return ServerSeen(place, {}, f"{error.message}: {error.fields['cause']}")
