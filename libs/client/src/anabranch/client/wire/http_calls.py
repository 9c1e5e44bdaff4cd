"""Requests to the gateway; turns its problem documents into errors of the project's tree.

Only this module imports httpx, and none of httpx's types leave it, so that another library can
replace it here. httpx is slow to load: only clients of a gateway import this module.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx
import msgspec

from anabranch.client.wire.read_tokens import ReadTokens
from anabranch.common.contracts.base import ReadToken
from anabranch.common.errors import (
    AnabranchError,
    FieldValue,
    InvalidRequest,
    InvalidSetting,
    OutcomeUnknown,
    Unavailable,
    from_body,
)
from anabranch.common.runtime.speaking import enveloped

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 60.0
"""Longer than the gateway takes: 30 s for a request, and 20 s more for a long-poll."""
PROBLEM = "application/problem+json"
READ_TOKEN = "anabranch-read-token"
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Call:
    """One request; its body is a JSON value, bytes, or absent."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, object] | None = None
    content: bytes | None = None
    timeout_s: float = 0.0
    """How long the answer may take; 0: `ANSWER_TIMEOUT_S`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful response. The names of its headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Door:
    """The address, headers and TLS context of a WebSocket to the gateway. `tls` None: no TLS."""

    url: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


class Problem(msgspec.Struct, frozen=True):
    """The fields of a problem document that this client uses."""

    code: str
    detail: str
    remedy: str = ""
    fields: dict[str, FieldValue] = msgspec.field(default_factory=dict)


class GatewayCalls:
    """A session with one gateway; an async context manager.

    Raises InvalidSetting if `url` is not an HTTP address.
    """

    def __init__(
        self,
        url: str,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        token: str = "",
    ) -> None:
        self.url = url
        self._token = token
        self._tls: ssl.SSLContext | None = None
        self._tokens = ReadTokens()
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)
        try:
            if httpx.URL(url).scheme not in ("http", "https"):
                raise httpx.InvalidURL("it begins with neither http:// nor https://")
            self._http = httpx.AsyncClient(base_url=url, timeout=timeout, transport=transport)
        except httpx.InvalidURL as error:
            raise InvalidSetting(
                f"not the address of a gateway: {str(error).lower()}",
                remedy="name it as http://host:port",
                url=url,
            ) from error

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def reach(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return if the gateway answers in time. Raises Unavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.once(Call("GET", "/ping"))
        except TimeoutError as error:
            raise self._nobody(f"no answer in {timeout_s:g} s") from error

    async def once(self, call: Call) -> Answer:
        """Make one attempt and return its answer.

        Raises the error in the gateway's problem document; Unavailable if the gateway was not
        reached or did not complete the answer to a GET; OutcomeUnknown if it did not complete the
        answer to any other method.
        """
        try:
            response = await self._http.request(
                call.method,
                call.path,
                params=dict(call.query) or None,
                headers=self._headers_of(call),
                json=call.json,
                content=call.content,
                timeout=self._timeout_of(call),
            )
        except NEVER_SENT as error:
            raise self._nobody(_text(error)) from error
        except httpx.RequestError as error:
            lost = Unavailable if call.method == "GET" else OutcomeUnknown
            raise lost(
                "the gateway did not complete its answer", url=self.url, cause=_text(error)
            ) from error
        self._tokens.merge(ReadTokens.parse(response.headers.get(READ_TOKEN, "")).points())
        if not response.is_success:
            kind = response.headers.get("content-type", "")
            raise self.refusal(response.status_code, kind, response.content)
        return Answer(dict(response.headers), response.content)

    def _headers_of(self, call: Call) -> dict[bytes, bytes]:
        """The call's headers, the client's token, and the read tokens, valid at any gateway."""
        tokens = {READ_TOKEN: str(self._tokens)} if self._tokens.points() else {}
        beside = enveloped(b"", self._token).headers() or {}
        every = {**beside, **tokens, **call.headers}
        return {name.encode(): value.encode() for name, value in every.items()}

    def learn(self, points: Iterable[ReadToken]) -> None:
        """Demand these points of later answers."""
        self._tokens.merge(points)

    async def close(self) -> None:
        """Close the connections; repeatable."""
        await self._http.aclose()

    def door(self, path: str) -> Door:
        """Describe a WebSocket on this path; it trusts the same certificates as requests."""
        base = self._http.base_url
        is_secure = base.scheme == "https"
        if is_secure and self._tls is None:
            self._tls = httpx.create_ssl_context()
        whole = f"{base.raw_path.decode().rstrip('/')}{path}"
        url = base.copy_with(scheme="wss" if is_secure else "ws", raw_path=whole.encode())
        return Door(str(url), enveloped(b"", self._token).headers() or {}, self._tls)

    def _timeout_of(self, call: Call) -> httpx.Timeout:
        answer_s = call.timeout_s or ANSWER_TIMEOUT_S
        connect_s = min(CONNECT_TIMEOUT_S, answer_s)
        return httpx.Timeout(answer_s, connect=connect_s, pool=connect_s)

    def _nobody(self, cause: str) -> Unavailable:
        remedy = "start a cluster with `anabranch up`, or name another gateway"
        return Unavailable("no gateway answers", remedy=remedy, url=self.url, cause=cause)

    def refusal(self, status: int, content_type: str, body: bytes) -> AnabranchError:
        """Return the error for a response that is not a success."""
        if content_type.partition(";")[0].strip() == PROBLEM:
            try:
                told = msgspec.json.decode(body, type=Problem)
            except msgspec.DecodeError:
                pass  # The response is not from a gateway: see below.
            else:
                return from_body(
                    {
                        "code": told.code,
                        "message": told.detail,
                        "remedy": told.remedy,
                        "fields": told.fields,
                    }
                )
        stranger = Unavailable if status >= 500 else InvalidRequest
        return stranger(
            "the server at this address is not a gateway",
            remedy="check the address, and any proxy before the gateway",
            url=self.url,
            status=status,
        )


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
