"""The health and the metrics of services, by HTTP."""

import json
import re
from collections.abc import Mapping

from anabranch.cli.doctor.decisions.services import Service
from anabranch.cli.doctor.sources.http_get import get
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.health import PartHealth
from anabranch.common.workflow.bounded import for_each

ASKED_AT_ONCE_MAX = 8
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*(?:\{.*\})?) ([^ ]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PREFIX = "anabranch-"


async def services(places: Mapping[str, str]) -> tuple[Service, ...]:
    """The services at these addresses, by their names."""
    found: dict[str, Service] = {}

    async def look(name: str) -> None:
        found[name] = await service(name, places[name])

    await for_each(places, ASKED_AT_ONCE_MAX, look)
    return tuple(found[name] for name in places)


async def service(name: str, url: str) -> Service:
    """The service at the base URL of its health port. Its `problem` says why there is no answer."""
    base = url.rstrip("/")
    try:
        health = await get(f"{base}/readyz")
        exposition = await get(f"{base}/metrics")
    except Unavailable as error:
        return Service(name, problem=f"{error.message} ({error.fields['cause']})")
    parts = parts_in(health.body)
    if parts is None:
        return Service(name, problem=f"its /readyz is not one of ours (status {health.status})")
    samples = samples_in(exposition.body.decode(errors="replace"))
    told = target_in(samples)
    return Service(
        name=name,
        kind=told.get("service_name", "").removeprefix(_PREFIX),
        release=told.get("service_version", ""),
        ready=health.status == 200,
        parts=parts,
        metrics=samples,
    )


def parts_in(body: bytes) -> Mapping[str, PartHealth] | None:
    """The parts in an answer of `/readyz`; None if it is something else."""
    try:
        parts = json.loads(body)["parts"]
        return {
            str(name): PartHealth(bool(part["ready"]), str(part["reason"]))
            for name, part in parts.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def samples_in(text: str) -> dict[str, float]:
    """The values of an exposition in Prometheus' text format, by name with labels."""
    found = {}
    for name, value in _SAMPLE.findall(text):
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found


def target_in(samples: Mapping[str, float]) -> dict[str, str]:
    """The labels of ``target_info``, which name the service and its release."""
    for name in samples:
        if name.startswith("target_info{"):
            return dict(_LABEL.findall(name))
    return {}
