"""Whether requirements.lock still holds what the parts declare."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN_NAMESPACE = "anabranch"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?:\s*;\s*([^\\\n]+?))?\s*\\?$", re.MULTILINE)


def locked_versions(lock: str) -> dict[str, list[str]]:
    """Pinned versions by canonical name, those that another platform alone needs left out."""
    found: dict[str, list[str]] = {}
    for name, version, marker in _PINNED.findall(lock):
        if not marker or Marker(marker).evaluate():
            found.setdefault(canonicalize_name(name), []).append(version)
    return found


def declared_requirements(root: Path) -> list[Requirement]:
    """What every part and the development group ask for; the parts themselves left out."""
    texts: list[str] = []
    for path in (
        root / "pyproject.toml",
        *root.glob("libs/*/pyproject.toml"),
        *root.glob("services/*/pyproject.toml"),
    ):
        texts += _declared(tomllib.loads(path.read_text()))
    requirements = [Requirement(text) for text in texts]
    return [one for one in requirements if one.name.split("-")[0] != OWN_NAMESPACE]


def drift(declared: Iterable[Requirement], locked: Mapping[str, list[str]]) -> list[str]:
    """Declared requirements that the lock does not fulfil."""
    wrong = []
    for requirement in declared:
        versions = locked.get(canonicalize_name(requirement.name), [])
        needed = requirement.marker is None or requirement.marker.evaluate()
        if needed and not any(version in requirement.specifier for version in versions):
            shown = ", ".join(versions) or "missing"
            wrong.append(f"{requirement} (locked: {shown}): run make lock")
    return wrong


def _declared(project: Mapping[str, object]) -> list[str]:
    table = project.get("project")
    assert isinstance(table, dict)
    groups = [
        table.get("dependencies", []),
        *table.get("optional-dependencies", {}).values(),
    ]
    development = project.get("dependency-groups", {})
    assert isinstance(development, dict)
    return [str(text) for group in (*groups, *development.values()) for text in group]
