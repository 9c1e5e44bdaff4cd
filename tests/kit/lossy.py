"""A transport of HTTP requests that loses what a test tells it to lose."""

from dataclasses import dataclass, field

import httpx


@dataclass
class Lossy(httpx.AsyncBaseTransport):
    """Hands requests on; raises the next of `before` instead, or of `after` in place of the
    answer."""

    transport: httpx.AsyncBaseTransport
    before: list[httpx.TransportError] = field(default_factory=list)
    after: list[httpx.TransportError] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.before:
            raise self.before.pop(0)
        response = await self.transport.handle_async_request(request)
        if self.after:
            raise self.after.pop(0)
        return response
