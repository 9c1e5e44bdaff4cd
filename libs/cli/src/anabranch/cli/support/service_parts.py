"""The parts about the services: the answers of their health ports, and their logs."""

from collections.abc import AsyncIterator
from pathlib import Path

from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.place import Place
from anabranch.cli.doctor.sources.http_get import get
from anabranch.cli.figures import size
from anabranch.cli.support.document import Document, Part
from anabranch.cli.support.log_tail import lines_since, newest_part
from anabranch.common.runtime.threads import run_in_daemon

LOG_BYTES_MAX = 10 * 1024 * 1024
LOGS_MAX = 200
LOGS_SHARE = 0.8
"""The share of the bundle that logs may fill."""


def service_parts(place: Place) -> tuple[Part, ...]:
    """A part per service, so that one that does not answer leaves the others."""
    known = dict(place.health)
    if place.gateway:
        known.setdefault("gateway", place.gateway)
    if not known:
        why = place.out_of_reach("no health port is known", "name one with --health")
        return (_missing("services", "health and metrics of services", why),)
    numbered = enumerate(known.items(), start=1)
    return tuple(_service(name, url, number) for number, (name, url) in numbered)


def log_parts(place: Place, *, since_ms: int, bytes_max: int) -> tuple[Part, ...]:
    """A part per log of the data directory, each with its share of the bytes. Blocking."""
    try:
        logs = sorted((place.data_dir / "logs").iterdir()) if place.data_dir is not None else []
    except OSError as error:
        return (_missing("logs", "the services' logs", error),)
    if not logs:
        why = CannotLook("no directory with logs is known", "name the data directory: --data-dir")
        return (_missing("logs", "the services' logs", why),)
    share = min(LOG_BYTES_MAX, int(bytes_max * LOGS_SHARE) // len(logs))
    return tuple(_log(log, since_ms, share) for log in logs[:LOGS_MAX])


def _service(name: str, url: str, number: int) -> Part:
    folder = f"services/{name if name.replace('-', '').isalnum() else number}"

    async def gather() -> AsyncIterator[Document]:
        base = url.rstrip("/")
        for path, file in (("readyz", "readyz.json"), ("metrics", "metrics.txt")):
            answer = await get(f"{base}/{path}")
            text = answer.body.decode(errors="replace")
            yield Document(f"{folder}/{file}", "text", text=text)

    return Part(f"service {name}", f"health and metrics of {name}", gather)


def _log(log: Path, since_ms: int, bytes_max: int) -> Part:
    async def gather() -> AsyncIterator[Document]:
        tail = await run_in_daemon("log", lambda: newest_part(log, bytes_max))
        text = "".join(f"{line}\n" for line in lines_since(tail.text, since_ms))
        older = f"without the older {size(tail.cut_bytes)}" if tail.cut_bytes else ""
        yield Document(f"logs/{log.name}", "log", text=text, note=older)

    return Part(f"log {log.name}", "the newest part of a log", gather)


def _missing(name: str, about: str, why: CannotLook | OSError) -> Part:
    async def gather() -> AsyncIterator[Document]:
        raise why
        yield  # An asynchronous generator has a yield.

    return Part(name, about, gather)
