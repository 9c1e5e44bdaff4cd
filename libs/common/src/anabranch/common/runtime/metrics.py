"""Metrics: one definition of each, for Prometheus and for OTLP.

Counters and gauges are read on demand: their callbacks return plain integers that the code keeps
anyway, so counting costs an addition. Histograms record each value, once per request or group
commit, never per event. Labels have few values, such as
kinds, codes and routes, at most the containers of a store, and never the name of a stream or
segment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from anabranch.common.runtime.histograms import SECONDS_BOUNDS, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of Prometheus' text format."""

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "bytes", "seconds"]
Read = Callable[[], float | Mapping[tuple[str, ...], float]]
"""Returns the present value, or one value per combination of label values."""

_UNIT_CODES: Mapping[Unit, str] = {"": "", "bytes": "By", "seconds": "s"}


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. `name` is its name in Prometheus; its last word may be a unit."""

    name: str
    kind: Kind
    unit: Unit
    about: str
    labels: tuple[str, ...]


class Metrics:
    """The metrics of one process. Without a `meter` they are defined, but never read.

    `histograms`: the list that the exporters read, and that each new histogram joins.
    """

    def __init__(
        self,
        meter: Meter | None,
        exposition: Callable[[], bytes],
        histograms: list[Histogram] | None = None,
    ) -> None:
        self._meter = meter
        self._exposition = exposition
        self._definitions: dict[str, Definition] = {}
        self._histograms = [] if histograms is None else histograms

    @property
    def definitions(self) -> Sequence[Definition]:
        """All definitions, in the order of their creation."""
        return list(self._definitions.values())

    def exposition(self) -> bytes:
        """All present values in Prometheus' text format."""
        return self._exposition()

    def counter(self, name: str, about: str, read: Read, labels: tuple[str, ...] = ()) -> None:
        """Define a counter, whose `read` never falls.

        The name ends in ``_total``, after its unit if it has one.
        """
        assert name.endswith("_total")
        found = self._define(name, "counter", about, labels)
        if self._meter is None:
            return
        self._meter.create_observable_counter(
            name.removesuffix("_total"),
            [_observer(read, labels)],
            _UNIT_CODES[found.unit],
            about,
        )

    def gauge(self, name: str, about: str, read: Read, labels: tuple[str, ...] = ()) -> None:
        """Define a gauge, whose `read` may rise and fall."""
        found = self._define(name, "gauge", about, labels)
        if self._meter is None:
            return
        self._meter.create_observable_gauge(
            name, [_observer(read, labels)], _UNIT_CODES[found.unit], about
        )

    def histogram(
        self,
        name: str,
        about: str,
        labels: tuple[str, ...] = (),
        bounds: Sequence[float] = SECONDS_BOUNDS,
    ) -> Histogram:
        """Define a histogram of durations, whose name ends in ``_seconds``. The caller records each
        value."""
        assert name.endswith("_seconds")
        self._define(name, "histogram", about, labels)
        made = Histogram(name, about, labels, bounds)
        self._histograms.append(made)
        return made

    def _define(self, name: str, kind: Kind, about: str, labels: tuple[str, ...]) -> Definition:
        assert name not in self._definitions, f"{name} is defined twice"
        found = Definition(name, kind, _unit_of(name), about, labels)
        self._definitions[name] = found
        return found


def silent_metrics() -> Metrics:
    """Metrics that are never read and cost nothing, for parts that run outside a service."""
    return Metrics(None, lambda: b"")


def _unit_of(name: str) -> Unit:
    match name.removesuffix("_total").rpartition("_")[2]:
        case "bytes":
            return "bytes"
        case "seconds":
            return "seconds"
        case _:
            return ""


def _observer(
    read: Read, labels: tuple[str, ...]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        found = read()
        if isinstance(found, int | float):
            return [Observation(found)]
        # Copy first: exporters read in threads of their own.
        values = list(dict(found).items())
        return [
            Observation(value, dict(zip(labels, given, strict=True))) for given, value in values
        ]

    return observe
