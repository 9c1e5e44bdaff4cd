"""For whom a process sends a request: the span that it continues, and the caller's token.

A program has one token, which its client is given. A service that acts for many callers, as the
gateway does, sends each one's own: `speaking_as` names it for everything within a block.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from anabranch.common.contracts.envelope import Envelope
from anabranch.common.runtime.tracing import current_trace_parent

_token: ContextVar[str] = ContextVar("anabranch-token", default="")


def enveloped(body: bytes, token: str = "") -> Envelope:
    """A request to be sent, which continues the current span.

    It carries the token that `speaking_as` names, or else `token`.
    """
    return Envelope(body, current_trace_parent(), _token.get() or token)


@contextmanager
def speaking_as(token: str) -> Iterator[None]:
    """Within the block, requests carry this token; tasks that are started there inherit it."""
    before = _token.set(token)
    try:
        yield
    finally:
        _token.reset(before)
