"""JetStream's configuration from the monitoring port of the NATS server."""

import json
from collections.abc import Mapping

from anabranch.cli.doctor.sources.http_get import get, without_login
from anabranch.common.errors import InvalidSetting


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
