"""Reads a stream back from the gateway, page by page, as a program without the client would."""

from collections.abc import Callable, Iterator

import httpx

from anabranch.cli.demo.check import RowSum
from anabranch.common.errors import ConnectionLost, Corrupt, Unavailable

PAGE_EVENTS_MAX = 10_000
PAGE_S_MAX = 60.0
PAGE_COUNT_MAX = 100_000
_SIZE_BYTES = 4


async def read_over_http(
    gateway_url: str, stream: str, wanted: int, progress: Callable[[int], None]
) -> RowSum:
    """Everything from the head to the first empty page; `progress` hears how many so far.

    Stops early when more than the `wanted` events came. Raises ConnectionLost, Unavailable.
    """
    scope, _, name = stream.partition("/")
    path = f"{gateway_url}/v1/scopes/{scope}/streams/{name}/events"
    accept = {"accept": "application/octet-stream"}
    found, position = RowSum(), "head"
    async with httpx.AsyncClient(timeout=PAGE_S_MAX, trust_env=False) as http:
        for _ in range(PAGE_COUNT_MAX):
            parameters: dict[str, str | int] = {"from": position, "max_events": PAGE_EVENTS_MAX}
            try:
                answer = await http.get(path, params=parameters, headers=accept)
            except httpx.HTTPError as error:
                raise ConnectionLost("the gateway does not answer", cause=str(error)) from error
            if answer.status_code != httpx.codes.OK:
                raise Unavailable(
                    "the gateway refused a read", status=answer.status_code, body=answer.text[:500]
                )
            before = found.events
            found.add(framed(answer.content))
            progress(found.events)
            if found.events == before or found.events > wanted:
                break
            position = answer.headers["next-position"]
    return found


def framed(body: bytes) -> Iterator[bytes]:
    """The events of a body, each behind its size as four bytes. Raises Corrupt if it is cut."""
    at = 0
    while at < len(body):
        start = at + _SIZE_BYTES
        at = start + int.from_bytes(body[at:start], "big")
        if start > len(body) or at > len(body):
            raise Corrupt("a page of events is cut", size=len(body))
        yield body[start:at]
