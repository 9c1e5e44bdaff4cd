"""Versions: Python, the installed parts and their libraries, the servers, the services. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.cli.doctor.finding import Finding, failure, listed, ok, skipped, warning

PYTHON_MIN, PYTHON_BELOW = (3, 11), (3, 13)
NATS_MIN = (2, 12)
REDIS_MIN = (6, 2)
VALKEY_MIN = (7, 2)
"""The first release of Valkey; it equals Redis 7.2."""
SHOWN = ("nats-py", "pydantic", "msgspec", "obstore", "redis", "httpx", "uvloop")
"""The libraries whose versions the finding shows."""
_INSTALL_REMEDY = "install all parts of one release into a fresh environment"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a part. `installed` None: the library is missing; `satisfied`: it fits."""

    part: str
    text: str
    name: str
    installed: str | None
    satisfied: bool


@dataclass(frozen=True, slots=True)
class Packages:
    """The environment of this program. `parts`: the releases of Anabranch's distributions."""

    python: tuple[int, int, int]
    parts: Mapping[str, str]
    requirements: tuple[Requirement, ...]


class Released(Protocol):
    """A service that may report its release; empty if it does not."""

    @property
    def name(self) -> str: ...
    @property
    def release(self) -> str: ...


def python(found: Packages) -> Finding:
    """Whether the parts support this Python."""
    shown = ".".join(map(str, found.python))
    if PYTHON_MIN <= found.python[:2] < PYTHON_BELOW:
        return ok(f"Python {shown} is supported", python=shown)
    return failure(f"Python {shown} is not supported", "use Python 3.11 or 3.12", python=shown)


def parts(found: Packages) -> Finding:
    """Whether all installed parts are of one release."""
    releases = sorted(set(found.parts.values()))
    if len(releases) == 1:
        names = [name.removeprefix("anabranch-") for name in sorted(found.parts)]
        return ok(f"release {releases[0]}: {', '.join(names)}", release=releases[0])
    told = [f"{name} {release}" for name, release in sorted(found.parts.items())]
    return failure(f"parts of several releases are installed: {', '.join(told)}", _INSTALL_REMEDY)


def libraries(found: Packages) -> Finding:
    """Whether the installed libraries fit the parts' declarations."""
    wrong = [one for one in found.requirements if not one.satisfied]
    if wrong:
        told = [f"{one.part} needs {one.text}, found {one.installed or 'none'}" for one in wrong]
        return failure("; ".join(told), _INSTALL_REMEDY)
    versions = {one.name: one.installed for one in found.requirements}
    shown = [f"{name} {versions[name]}" for name in SHOWN if versions.get(name)]
    rest = len(versions) - len(shown)
    return ok(f"{', '.join(shown)} and {rest} more fit", libraries=len(versions))


def version_of(text: str) -> tuple[int, int] | None:
    """(major, minor) at the start of a version; None if it has another form."""
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def nats_server(release: str) -> Finding:
    """Whether the running NATS server is new enough."""
    return _server("NATS server", release, NATS_MIN)


def redis_server(info: Mapping[str, str]) -> Finding:
    """Whether the running Redis or Valkey server is new enough; `info`: its answer to INFO."""
    if "valkey_version" in info:
        return _server("Valkey", info["valkey_version"], VALKEY_MIN)
    return _server("Redis", info.get("redis_version", ""), REDIS_MIN)


def services(own: str, found: Sequence[Released]) -> Finding:
    """Whether the services are of this command's release."""
    known = [one for one in found if one.release]
    others = [f"{one.name} {one.release}" for one in known if one.release != own]
    if others:
        return warning(
            f"this command is of release {own}, but {listed(others)}",
            "upgrade in the order segment stores, controllers, gateways, commands",
            release=own,
        )
    if not known:
        return skipped("no service tells its release")
    return ok(f"release {own}: {', '.join(one.name for one in known)}", release=own)


def _server(kind: str, release: str, version_min: tuple[int, int]) -> Finding:
    version, needed = version_of(release), ".".join(map(str, version_min))
    if version is None:
        return warning(
            f"the {kind} reports no known version: {release or 'none'}",
            f"check by hand that it is {needed} or later",
        )
    if version < version_min:
        return failure(
            f"{kind} {release} is too old", f"install {kind} {needed} or later", release=release
        )
    return ok(f"{kind} {release}; {needed} or later is needed", release=release)
