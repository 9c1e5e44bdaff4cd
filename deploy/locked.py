"""The part of requirements.lock that distributions need: `python locked.py anabranch-gateway`.

Prints requirements with their hashes, to be installed with ``--require-hashes --no-deps``. With
`--folders` it prints the folders of the project's own parts instead, in the same closure.

What our parts need is read from their pyproject.toml (extras left out: an image that wants one
declares it). What a third-party package needs is read from the lock, which names under each
package, as ``# via``, the packages that asked for it. Those may include extras that another part
asked for; so the result can be larger than needed, never smaller.

Needs the standard library alone, because it runs before anything is installed.
"""

import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VIA = re.compile(r"^    #(?: via)?(?:\s+(\S+))?\s*$")


@dataclass(frozen=True, slots=True)
class Pin:
    """One entry of the lock: its text with hashes, and who asked for it."""

    name: str
    text: str
    asked_by: frozenset[str]


@dataclass(frozen=True, slots=True)
class Part:
    """One of our own distributions: where it lies and the names that it asks for."""

    folder: str
    needs: frozenset[str]


def canonical(requirement: str) -> str:
    """The name at the start of a requirement, as the lock writes it."""
    found = _NAME.match(requirement.strip())
    if found is None:
        raise SystemExit(f"not a requirement: {requirement}")
    return re.sub(r"[-_.]+", "-", found[0]).lower()


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
        needs = frozenset(canonical(text) for text in project.get("dependencies", []))
        folder = path.parent.relative_to(root).as_posix()
        parts[canonical(project["name"])] = Part(folder, needs)
    return parts


def own_closure(wanted: Collection[str], parts: Mapping[str, Part]) -> list[str]:
    """The parts that `wanted` consist of, themselves included, sorted; third parties left out."""
    found: set[str] = set()
    waiting = [name for name in wanted if name in parts]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += sorted(parts[name].needs & parts.keys())
    return sorted(found)


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
    wanted = [canonical(name) for name in arguments if name != "--folders"]
    parts = read_parts(root)
    own = own_closure(wanted, parts)
    needs = {*wanted, *(need for name in own for need in parts[name].needs)}
    unknown = {need for need in needs if need.startswith("anabranch-")} - parts.keys()
    if unknown:
        raise SystemExit(f"no such part: {', '.join(sorted(unknown))}")
    if arguments[0] == "--folders":
        return " ".join(f"./{parts[name].folder}" for name in own)
    pins = read_lock((root / "requirements.lock").read_text())
    return "\n".join(pin.text for pin in needed(pins, needs - parts.keys()))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: locked.py [--folders] DISTRIBUTION…")
    sys.stdout.write(main(sys.argv[1:], Path.cwd()) + "\n")
