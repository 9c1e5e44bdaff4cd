"""The shape of the catalogue: a command is a row, and rows stand in groups and under headings.

A row names the function of its command as ``module:function`` below `anabranch.cli` and imports
nothing, so the help of the program needs no module of a command.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `help` is the first line of the function's docstring, which `make check` proves.

    `examples` are whole command lines. They stand in the command's help and in docs/command.md, and
    the tests run them.
    """

    name: str
    target: str
    help: str
    examples: tuple[str, ...] = ()
    if_alone: Mapping[str, str] = field(default_factory=dict)
    """Options that may stand without their number → the number that they then mean."""


@dataclass(frozen=True, slots=True)
class Group:
    """Commands under one name: `anabranch stream …`."""

    name: str
    help: str
    members: tuple["Command | Group", ...]


Entry = Command | Group


@dataclass(frozen=True, slots=True)
class Heading:
    """Entries that the help of the program shows together."""

    title: str
    entries: tuple[Entry, ...]


def paths(entries: Sequence[Entry], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, in the order of the catalogue."""
    for path, _ in commands(entries, before):
        yield path


def commands(
    entries: Sequence[Entry], before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command with its words, in the order of the catalogue."""
    for entry in entries:
        path = (*before, entry.name)
        if isinstance(entry, Group):
            yield from commands(entry.members, path)
        else:
            yield path, entry
