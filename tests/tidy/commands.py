"""The commands that `anabranch` really has, and whether their rows in the catalogue are true."""

from collections.abc import Sequence

from anabranch.cli.app import function_of
from anabranch.cli.catalogue import Entry, commands, paths


def command_names(entries: Sequence[Entry]) -> set[str]:
    """Every command, groups included: "up", "scope", "scope create"."""
    words = list(paths(entries))
    return {" ".join(path[:count]) for path in words for count in range(1, len(path) + 1)}


def wrong_rows(entries: Sequence[Entry]) -> list[str]:
    """The commands whose line of help is not the first line of their function's docstring, or that
    show no example of themselves."""
    wrong = []
    for path, command in commands(entries):
        line = (function_of(command).__doc__ or "").partition("\n")[0]
        words = " ".join(("anabranch", *path))
        if line != command.help:
            wrong.append(f"{words}: the catalogue says {command.help!r}, the docstring {line!r}")
        if not command.examples or not all(one.startswith(words) for one in command.examples):
            wrong.append(f"{words}: an example must begin with these words")
    return wrong
