"""The context of a process's requests: the span that they continue, and the caller's token.

A program has one token, which it passes to its client. A service that acts for many callers, as the
gateway does, sends each caller's own token: `speaking_as` sets it for all requests in a block.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from anabranch.common.contracts.envelope import Envelope
from anabranch.common.runtime.trace_context import current_trace_parent

_token: ContextVar[str] = ContextVar("anabranch-token", default="")


def enveloped(body: bytes, token: str = "") -> Envelope:
    """Wrap an outgoing request, which continues the current span.

    It carries the token that `speaking_as` names, or else `token`.
    """
    return Envelope(body, current_trace_parent(), _token.get() or token)


@contextmanager
def speaking_as(token: str) -> Iterator[None]:
    """Send this token with requests in the block; tasks started there inherit it."""
    before = _token.set(token)
    try:
        yield
    finally:
        _token.reset(before)
