"""Requests to the gateway, their repetition, and its problem documents as errors of the one tree.

This is the only module of the project that imports httpx: what replaces it one day is a change of
this import. Nothing of httpx leaves the module. Only clients of a gateway
import it, because it is slow to load.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx
import msgspec

from anabranch.client.backoff import Backoff
from anabranch.client.settings import BackoffSettings
from anabranch.client.wire.read_tokens import ReadTokens
from anabranch.common.contracts.base import ReadToken
from anabranch.common.errors import (
    AnabranchError,
    Fenced,
    FieldValue,
    InvalidRequest,
    InvalidSetting,
    OutcomeUnknown,
    Retry,
    Unavailable,
    Unknown,
    UnsupportedProtocol,
    from_body,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.common.runtime.speaking import enveloped

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 60.0
"""Longer than the gateway takes: 30 s for a request, and 20 s more for a long-poll."""
RETRY_TIMEOUT_S = 60.0
"""How long a call is repeated without success; the last attempt may begin at its end."""
BACKOFF = BackoffSettings(first_s=0.05, longest_s=1.0)
PROBLEM = "application/problem+json"
READ_TOKEN = "anabranch-read-token"
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, with a JSON value or bytes as its body, or neither."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, object] | None = None
    content: bytes | None = None
    timeout_s: float = 0.0
    """How long the answer may take; 0: as long as the gateway itself allows its routes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. Names of headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """Raises UnsupportedProtocol if the gateway did not send it."""
        value = self.headers.get(name)
        if value is None:
            raise UnsupportedProtocol("the gateway's answer lacks a header", header=name)
        return value


class Problem(msgspec.Struct, frozen=True):
    """What is used of a problem document."""

    code: str
    detail: str
    remedy: str = ""
    fields: dict[str, FieldValue] = msgspec.field(default_factory=dict)


class GatewayCalls:
    """An async context manager. Raises InvalidSetting for what is no HTTP address."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        rng: Rng,
        transport: httpx.AsyncBaseTransport | None = None,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        token: str = "",
    ) -> None:
        self.url = url
        self._token = token
        self._clock = clock
        self._rng = rng
        self._retry_timeout_s = retry_timeout_s
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
        """Raises Unavailable unless the gateway answers in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.once(Call("GET", "/ping"))
        except TimeoutError as error:
            raise self._nobody(f"no answer in {timeout_s:g} s") from error

    async def once(self, call: Call) -> Answer:
        """The answer to one attempt.

        Raises what the gateway's problem document says; Unavailable if it was not reached, or if
        reading did not end; OutcomeUnknown if a change may or may not have been made.
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
            raise self._told(response)
        return Answer(dict(response.headers), response.content)

    def _headers_of(self, call: Call) -> dict[bytes, bytes]:
        """The call's headers, and what this session has changed: it may be told to any gateway."""
        tokens = {READ_TOKEN: str(self._tokens)} if self._tokens.points() else {}
        beside = enveloped(b"", self._token).headers() or {}
        every = {**beside, **tokens, **call.headers}
        return {name.encode(): value.encode() for name, value in every.items()}

    async def repeated(self, call: Call) -> Answer:
        """The answer to a call that does nothing more when it is repeated, by its nature or by
        its Idempotency-Key: attempts go on while they may help, for `retry_timeout_s`.

        Raises as `once` does; OutcomeUnknown if that was the end of any attempt.
        """
        backoff = Backoff(BACKOFF, self._rng, self._retry_timeout_s)
        doubt: Unknown | None = None
        while True:
            try:
                return await self.once(call)
            except (Retry, Fenced, Unknown) as error:
                doubt = error if isinstance(error, Unknown) else doubt
                pause_s = backoff.failed(self._clock.monotonic())
                if pause_s is None:
                    raise doubt or error from error
            await self._clock.sleep(pause_s)

    async def lines(self, call: Call) -> AsyncGenerator[list[bytes], None]:
        """The lines of an answer that goes on, as many as came together; without empty ones.

        To be closed by the caller. Raises as `once` does, in the middle too.
        """
        headers = self._headers_of(call)
        try:
            async with self._http.stream(
                call.method, call.path, params=dict(call.query) or None, headers=headers
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise self._told(response)
                rest = b""
                async for piece in response.aiter_bytes():
                    *whole, rest = (rest + piece).split(b"\n")
                    if found := [line for line in whole if line]:
                        yield found
        except NEVER_SENT as error:
            raise self._nobody(_text(error)) from error
        except httpx.RequestError as error:
            raise Unavailable(
                "the gateway's answer was cut off", url=self.url, cause=_text(error)
            ) from error

    def learn(self, points: Iterable[ReadToken]) -> None:
        """Demand these points of the answers to come."""
        self._tokens.merge(points)

    async def close(self) -> None:
        """Close the connections; repeatable."""
        await self._http.aclose()

    def _timeout_of(self, call: Call) -> httpx.Timeout:
        answer_s = call.timeout_s or ANSWER_TIMEOUT_S
        connect_s = min(CONNECT_TIMEOUT_S, answer_s)
        return httpx.Timeout(answer_s, connect=connect_s, pool=connect_s)

    def attempts(self) -> "Attempts":
        """A series of attempts at what may be repeated."""
        return Attempts(Backoff(BACKOFF, self._rng, self._retry_timeout_s), self._clock)

    def _nobody(self, cause: str) -> Unavailable:
        remedy = "start a cluster with `anabranch up`, or name another gateway"
        return Unavailable("no gateway answers", remedy=remedy, url=self.url, cause=cause)

    def _told(self, response: httpx.Response) -> AnabranchError:
        """The error that a refusal tells."""
        media_type = response.headers.get("content-type", "").partition(";")[0].strip()
        if media_type == PROBLEM:
            try:
                told = msgspec.json.decode(response.content, type=Problem)
            except msgspec.DecodeError:
                pass  # told below, as an answer of a stranger is
            else:
                return from_body(
                    {
                        "code": told.code,
                        "message": told.detail,
                        "remedy": told.remedy,
                        "fields": told.fields,
                    }
                )
        stranger = Unavailable if response.is_server_error else InvalidRequest
        return stranger(
            "the server at this address is not a gateway",
            remedy="check the address, and any proxy before the gateway",
            url=self.url,
            status=response.status_code,
        )


class Attempts:
    """Attempts that failed one after the other, each for a reason that may pass."""

    def __init__(self, backoff: Backoff, clock: Clock) -> None:
        self._backoff = backoff
        self._clock = clock

    async def failed(self, error: AnabranchError) -> None:
        """Wait before the next one. Raises the error if there were enough."""
        pause_s = self._backoff.failed(self._clock.monotonic())
        if pause_s is None:
            raise error
        await self._clock.sleep(pause_s)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
