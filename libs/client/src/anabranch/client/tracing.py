"""Whether a client traces, found out without loading OpenTelemetry in programs that do not.

A client traces with the tracer that it is given, or with the one that the program set up for itself
before it connects. `block_spans`, which needs OpenTelemetry, is imported in these two cases alone.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anabranch.common.errors import CodecMissing
from anabranch.common.runtime.trace_context import may_have_spans

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from anabranch.client.block_spans import BlockSpans

Joining = Callable[["BlockSpans | None"], "BlockSpans | None"]
"""Returns the spans of a block with the current span among its callers, if that one is sampled."""


def tracer_for(given: "Tracer | None") -> "Tracer | None":
    """The tracer that was given, or else the program's own; None if nothing is to be traced.

    Raises CodecMissing if a tracer was given and OpenTelemetry is not installed.
    """
    if given is None:
        return _tracer_of_program()
    if not may_have_spans() and find_spec("opentelemetry") is None:
        raise CodecMissing(
            "tracing requires a package that is not installed",
            remedy="pip install 'anabranch-client[telemetry]'",
            package="opentelemetry-api",
        )
    return given


def joining(tracer: "Tracer | None") -> Joining | None:
    """How the blocks of a writer note the spans of its callers; None if it does not trace."""
    if tracer is None:
        return None
    from anabranch.client.block_spans import joined

    return partial(joined, tracer=tracer)


def _tracer_of_program() -> "Tracer | None":
    if not may_have_spans():
        return None
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace.get_tracer("anabranch.client")
