"""The command `anabranch support-bundle`."""

import os
import platform
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.commands.amounts import size_bytes, time_ms
from anabranch.cli.doctor.command import Addresses, find_place
from anabranch.cli.doctor.place import Place
from anabranch.cli.doctor.sight import Sight, sight_of
from anabranch.cli.figures import counted, size
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_async
from anabranch.cli.support.anonymity import Anonymizer
from anabranch.cli.support.archive import RESERVED_BYTES, Archive
from anabranch.cli.support.bundle import Bundle, Gathered
from anabranch.cli.support.cluster_parts import cluster_parts
from anabranch.cli.support.document import Part
from anabranch.cli.support.findings_part import findings_part
from anabranch.cli.support.machine_parts import machine_parts
from anabranch.cli.support.redaction import Redactor
from anabranch.cli.support.secrets_here import known_secrets
from anabranch.cli.support.service_parts import log_parts, service_parts
from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds

SECONDS_MAX = 180.0
BYTES_MIN = 2 * RESERVED_BYTES
_HERE = Connection()
_NAMED = Addresses()


@dataclass(frozen=True, slots=True)
class Asked:
    """The wishes of the command line. `since_ms`: the Unix time before which logs are left out."""

    file: Path
    since_ms: int
    bytes_max: int
    anonymous: bool


def support_bundle(
    *,
    out: Path | None = None,
    since: str = "24h",
    anonymous: Annotated[bool, Parameter(negative="")] = False,
    max_size: str = "100MiB",
    addresses: Addresses = _NAMED,
    connection: Connection = _HERE,
) -> None:
    """Collect logs, settings, states and findings in one file for your supporters, without secrets.

    Event payloads and credentials are never in it. The manifest in the file lists its contents, and
    the parts that could not be gathered, with the reason. Look through it before you send it.

    Parameters
    ----------
    out
        The file, or a directory for it; by default anabranch-support-<time>.tar.gz here.
    since
        How far back the logs go: 90m, 24h, 7d.
    anonymous
        Replace the names of scopes, streams and groups by hashes.
    max_size
        The largest size, before compression: 20MiB, 1GiB.
    """
    clock = SystemClock()
    now_ms = clock.now_ms()
    asked = Asked(file_of(out, now_ms), now_ms - time_ms(since), size_bytes(max_size), anonymous)
    _check(asked)
    place = find_place(connection, addresses)
    gathered, size_of_file = run_async(_write(place, asked, now_ms))
    tell(Output(connection.form), asked.file, size_of_file, gathered)


def file_of(out: Path | None, now_ms: int) -> Path:
    """The path of the file."""
    at = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"anabranch-support-{at}.tar.gz"
    if out is None:
        return Path(name).absolute()
    return (out / name if out.is_dir() else out).absolute()


def tell(output: Output, file: Path, size_of_file: int, gathered: Gathered) -> None:
    """The file, its size, and its missing parts."""
    count = counted(len(gathered.documents), "document")
    lines = [f"wrote {file} ({size(size_of_file)}, {count})"]
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for one in gathered.missing:
        reasons[one.why].append(one.part)
    lines += [f"  without {', '.join(parts)}: {why}" for why, parts in reasons.items()]
    lines += ["look through it before you send it; manifest.json lists its contents"]
    output.done(
        "\n".join(lines),
        {
            "file": str(file),
            "size_bytes": size_of_file,
            "documents": len(gathered.documents),
            "missing": [{"part": one.part, "why": one.why} for one in gathered.missing],
        },
    )


async def _write(place: Place, asked: Asked, now_ms: int) -> tuple[Gathered, int]:
    """Gather and write everything; returns the contents, and the size of the file."""
    clock = SystemClock()
    addresses = [*place.nats_monitor.split(","), place.redis, place.gateway, *place.health.values()]
    addresses += [place.target.address] if place.target is not None else []
    redactor = Redactor(known_secrets(os.environ, place.data_dir, addresses))
    anonymizer = _anonymizer(place) if asked.anonymous else None
    folder = asked.file.name.partition(".")[0] or "bundle"
    archive = Archive(asked.file, folder=folder, bytes_max=asked.bytes_max, now_s=now_ms // 1000)
    with archive:
        bundle = Bundle(archive, redactor, anonymizer, clock, seconds_max=SECONDS_MAX)
        async with sight_of(place, os.environ, clock) as sight:
            await bundle.gather(_parts(sight, asked))
        bundle.add_manifest(_about(place, asked, now_ms))
        return bundle.gathered, archive.finish()


def _parts(sight: Sight, asked: Asked) -> tuple[Part, ...]:
    """All parts. The cluster's lists come first: they teach names for the texts."""
    place, clock = sight.place, SystemClock()
    return (
        *cluster_parts(sight.view, sight.servers),
        *machine_parts(sight.machine, place.data_dir, os.environ),
        findings_part(sight, clock),
        *service_parts(place),
        *log_parts(place, since_ms=asked.since_ms, bytes_max=asked.bytes_max),
    )


def _anonymizer(place: Place) -> Anonymizer:
    replaced = {str(Path.home()): "HOME", platform.node(): "HOST"}
    if place.data_dir is not None:
        replaced = {str(place.data_dir.absolute()): "DATA_DIR", **replaced}
    return Anonymizer(SystemIds().new_bytes(), replaced)


def _about(place: Place, asked: Asked, now_ms: int) -> dict[str, object]:
    return {
        "format": 1,
        "command": f"anabranch {version('anabranch-cli')}",
        "created_ms": now_ms,
        "cluster": place.shown,
        "logs_since_ms": asked.since_ms,
        "bytes_max": asked.bytes_max,
    }


def _check(asked: Asked) -> None:
    if asked.file.exists():
        raise InvalidRequest(
            "a file of this name exists",
            remedy="name another file with --out, or delete this one",
            path=str(asked.file),
        )
    if asked.bytes_max < BYTES_MIN:
        raise InvalidRequest(
            "the size is too small for a support bundle", remedy="use --max-size 10MiB or more"
        )
