"""The installed parts and libraries, from the metadata of their distributions."""

import sys
from importlib.metadata import PackageNotFoundError, distributions, requires, version

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Declared

from anabranch.cli.doctor.decisions.versions import Packages, Requirement

OWN = "anabranch-"
WORKSPACE = "anabranch-workspace"


def packages() -> Packages:
    """This environment. Requirements of extras count only if their library is installed."""
    own = {
        name: found.version
        for found in distributions()
        if (name := (found.name or "").lower()).startswith(OWN) and name != WORKSPACE
    }
    requirements = [one for part in sorted(own) for one in _requirements(part)]
    return Packages(sys.version_info[:3], own, tuple(requirements))


def _requirements(part: str) -> list[Requirement]:
    found = []
    for text in requires(part) or ():
        try:
            declared = Declared(text)
        except InvalidRequirement:
            continue
        extra = "extra ==" in text
        if declared.marker is not None and not extra and not declared.marker.evaluate():
            continue
        installed = _installed(declared.name)
        if extra and installed is None:
            continue
        fits = installed is not None and declared.specifier.contains(installed, prereleases=True)
        shown = f"{declared.name}{declared.specifier}"
        found.append(Requirement(part, shown, declared.name.lower(), installed, fits))
    return found


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
