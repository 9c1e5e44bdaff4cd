"""The part of requirements.lock that distributions need: `python locked.py anabranch-gateway`.

Prints requirements with their hashes, to be installed with ``--require-hashes --no-deps``. With
`--folders` it prints the folders of the project's own parts instead, in the same closure.

What our parts need is read from their pyproject.toml, with the extras that they ask of each other:
``anabranch-common[service]``. What a third-party package needs is read from the lock, which names
under each package, as ``# via``, the packages that asked for it. Those may include extras that
another part asked for; so the result can be larger than needed, never smaller.

Needs the standard library alone, because it runs before anything is installed.
"""

import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRAS = re.compile(r"[^\[;]*\[([^\]]*)\]")
_VIA = re.compile(r"^    #(?: via)?(?:\s+(\S+))?\s*$")


@dataclass(frozen=True, slots=True)
class Pin:
    """One entry of the lock: its text with hashes, and who asked for it."""

    name: str
    text: str
    asked_by: frozenset[str]


@dataclass(frozen=True, slots=True)
class Part:
    """One of our own distributions: where it lies, and the requirements of each of its extras.

    The extra "" holds what it needs in any case.
    """

    folder: str
    needs: Mapping[str, Sequence[str]]


def canonical(requirement: str) -> str:
    """The name at the start of a requirement, as the lock writes it."""
    found = _NAME.match(requirement.strip())
    if found is None:
        raise SystemExit(f"not a requirement: {requirement}")
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def extras(requirement: str) -> list[str]:
    """The extras that a requirement names, and "" for what it needs in any case."""
    found = _EXTRAS.match(requirement)
    return ["", *(one.strip() for one in found[1].split(","))] if found else [""]


def read_lock(text: str) -> list[Pin]:
    """The pins of a lock, in its order. A package may be pinned twice, for two interpreters."""
    pins = []
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE):
        if not _NAME.match(block):
            continue
        lines = block.splitlines()
        named = [found[1] for line in lines if (found := _VIA.match(line)) and found[1]]
        kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        pins.append(Pin(canonical(block), "\n".join(kept), frozenset(named)))
    return pins


def read_parts(root: Path) -> dict[str, Part]:
    """Our own distributions under `root` by name."""
    parts = {}
    for path in sorted(root.glob("*/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        needs = {"": project.get("dependencies", []), **project.get("optional-dependencies", {})}
        folder = path.parent.relative_to(root).as_posix()
        parts[canonical(project["name"])] = Part(folder, needs)
    return parts


def closure(wanted: Iterable[str], parts: Mapping[str, Part]) -> tuple[list[str], list[str]]:
    """Our own parts that the requirements consist of, and the third parties; both sorted."""
    own: set[tuple[str, str]] = set()
    others: set[str] = set()
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        name = canonical(requirement)
        if name not in parts:
            others.add(name)
            continue
        for extra in extras(requirement):
            if (name, extra) not in own:
                own.add((name, extra))
                waiting += _needs(name, extra, parts)
    return sorted({name for name, _ in own}), sorted(others)


def _needs(name: str, extra: str, parts: Mapping[str, Part]) -> Sequence[str]:
    if extra not in parts[name].needs:
        raise SystemExit(f"no such extra: {name}[{extra}]")
    return parts[name].needs[extra]


def needed(pins: Iterable[Pin], roots: Collection[str]) -> list[Pin]:
    """The pins that `roots` and whatever these ask for are made of, in the lock's order.

    Raises SystemExit if a root is not pinned.
    """
    pins = list(pins)
    absent = set(roots) - {pin.name for pin in pins}
    if absent:
        raise SystemExit(f"not in the lock: {', '.join(sorted(absent))}")
    names = set(roots)
    while True:
        more = {pin.name for pin in pins if pin.asked_by & names} - names
        if not more:
            return [pin for pin in pins if pin.name in names]
        names |= more


def main(arguments: list[str], root: Path) -> str:
    """What the command prints."""
    parts = read_parts(root)
    own, others = closure((name for name in arguments if name != "--folders"), parts)
    unknown = [name for name in others if name.startswith("anabranch-")]
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}")
    if arguments[0] == "--folders":
        return " ".join(f"./{parts[name].folder}" for name in own)
    pins = read_lock((root / "requirements.lock").read_text())
    return "\n".join(pin.text for pin in needed(pins, others))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: locked.py [--folders] DISTRIBUTION…")
    sys.stdout.write(main(sys.argv[1:], Path.cwd()) + "\n")
