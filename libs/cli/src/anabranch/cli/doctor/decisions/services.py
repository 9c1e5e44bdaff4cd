"""The services as they describe themselves: readiness, and metrics. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.cli.doctor.finding import Finding, failure, ok, warning
from anabranch.common.runtime.health import PartHealth

CONTROLLER, STORE, GATEWAY = "controller", "segstore", "gateway"
THROTTLE_WARNING = 0.9
"""A writer that is faster than tier 2 keeps a healthy store at up to three quarters."""
_LOG_REMEDY = "read the log of that service; docs/operations.md explains the parts"


@dataclass(frozen=True, slots=True)
class Service:
    """A service's answers. `name` says which it is to people; `kind` is empty if it is unknown.

    `problem`: why it did not answer; then the rest is empty. `metrics`: values by the name with its
    labels, as the service wrote them.
    """

    name: str
    kind: str = ""
    release: str = ""
    ready: bool = False
    parts: Mapping[str, PartHealth] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


def readiness(found: Sequence[Service]) -> Finding:
    """Whether every service is ready, and none has something to say."""
    away = [f"{one.name} does not answer: {one.problem}" for one in found if one.problem]
    unready = [told for one in found if not one.problem for told in _unready(one)]
    if away or unready:
        return failure("; ".join([*away, *unready]), _LOG_REMEDY)
    remarks = [
        f"{one.name}: {name}: {part.reason}"
        for one in found
        for name, part in one.parts.items()
        if part.reason
    ]
    if remarks:
        return warning(f"all are ready, but {'; '.join(remarks)}", _LOG_REMEDY)
    return ok(f"{', '.join(one.name for one in found)}: all parts are ready")


def tier_two(found: Sequence[Service]) -> Finding:
    """Whether the stores move data to tier 2, and controllers describe the streams there."""
    told = []
    for one in found:
        export = one.parts.get("export")
        if one.kind == CONTROLLER and export is not None and export.reason:
            told.append(f"{one.name} cannot export streams: {export.reason}")
        failures = _sum(one, "anabranch_segstore_flush_failures_total")
        if failures:
            told.append(f"{int(failures):,} flushes of {one.name} have failed since its start")
        ratio = one.metrics.get('anabranch_segstore_throttle_ratio{source="untiered"}', 0.0)
        if ratio >= THROTTLE_WARNING:
            told.append(f"{one.name} holds {ratio:.0%} of the bytes that may wait for tier 2")
    flushed = sum(_sum(one, "anabranch_segstore_flushes_total") for one in found)
    if told:
        return warning(
            "; ".join(told),
            "check that tier 2 answers and has room; stores repeat failed flushes by themselves",
        )
    return ok(f"no flush to tier 2 has failed; {int(flushed):,} succeeded", flushes=int(flushed))


def defects(found: Sequence[Service]) -> Finding:
    """Whether a service met an unexpected error since it started."""
    names = ("anabranch_controller_defects_total", "anabranch_segstore_defects_total")
    counts = {one.name: int(sum(_sum(one, name) for name in names)) for one in found}
    told = [f"{name}: {count}" for name, count in counts.items() if count]
    if told:
        return warning(
            f"services met unexpected errors since they started: {', '.join(told)}",
            "find `unexpected` in their logs, and report it with `anabranch support-bundle`",
        )
    return ok("no service has met an unexpected error since it started")


def gateway(found: Service) -> Finding:
    """Whether the HTTP gateway serves."""
    if found.problem:
        return failure(f"the gateway does not answer: {found.problem}", "start the gateway")
    unready = _unready(found)
    if unready:
        return failure("; ".join(unready), _LOG_REMEDY)
    return ok(f"{found.name} is ready")


def _unready(one: Service) -> list[str]:
    told = [
        f"{one.name} is not ready: {name}: {part.reason or 'no reason told'}"
        for name, part in one.parts.items()
        if not part.ready
    ]
    return told or ([] if one.ready else [f"{one.name} is not ready"])


def _sum(one: Service, metric: str) -> float:
    """The metric's value, over all of its labels."""
    return sum(
        value
        for name, value in one.metrics.items()
        if name == metric or name.startswith(metric + "{")
    )
