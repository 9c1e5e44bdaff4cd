"""Traces and metrics of workflow steps.

An aggregate's state wakes a workflow, which knows no caller. To show its steps in the trace of the
command that they carry out, this module keeps the command's context by aggregate, for the
aggregates with the latest commands. After a restart, or on another controller, the steps have no
trace.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from opentelemetry.trace import Tracer

from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.runtime.tracing import continued
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.metrics import ControllerMetrics, uncounted

REMEMBERED_MAX = 1024

S = TypeVar("S")
E = TypeVar("E")


class CommandTraces:
    """Aggregate → `trace_parent` of its last command, if that was sampled."""

    def __init__(self) -> None:
        self._parents: OrderedDict[str, str] = OrderedDict()

    def remember(self, subject: str, trace_parent: str) -> None:
        """Remember the context of a command; an empty one removes the previous context."""
        self._parents.pop(subject, None)
        if trace_parent:
            self._parents[subject] = trace_parent
            if len(self._parents) > REMEMBERED_MAX:
                self._parents.popitem(last=False)

    def of(self, subject: str) -> str:
        """The trace context of the aggregate's work; empty if none."""
        return self._parents.get(subject, "")


@dataclass(frozen=True, slots=True)
class Observer:
    """The metrics and traces of handlers and steps. `tracer` None: no traces."""

    metrics: ControllerMetrics = field(default_factory=uncounted)
    tracer: Tracer | None = None
    traces: CommandTraces = field(default_factory=CommandTraces)


def observed(
    observer: Observer, step: str, perform: Callable[[Loaded[S]], Awaitable[E]]
) -> Callable[[Loaded[S]], Awaitable[E]]:
    """`perform`, counted by outcome and with a span in its command's trace."""

    async def run(loaded: Loaded[S]) -> E:
        steps = observer.metrics.steps
        parent = observer.traces.of(loaded.subject)
        with continued(observer.tracer, f"controller step {step}", parent):
            try:
                event = await perform(loaded)
            except AnabranchError:
                steps[step, "failed"] += 1
                raise
            except StillWaiting:
                steps[step, "waiting"] += 1
                raise
        steps[step, "done"] += 1
        return event

    return run
