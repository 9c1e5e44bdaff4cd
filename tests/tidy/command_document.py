"""docs/command.md: every command of `anabranch`, rendered from the catalogue and the functions.

The parser itself says which arguments and options a command has, so the document cannot differ
from it. The options for a cluster and for the form of the output stand in one table of their own.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import cyclopts

from anabranch.cli.app import EPILOGUE, application
from anabranch.cli.catalogue import CATALOGUE, Command, Entry, Group
from anabranch.cli.session import Connection
from tidy.source import ROOT

PATH = ROOT / "docs/command.md"
SHARED = frozenset(
    f"--{field.name.replace('_', '-')}" for field in fields(Connection) if field.name != "form"
)


def rendered() -> str:
    """The whole document."""
    app = application(None)
    return "\n".join([*_head(app), *_chapters(app)]).rstrip() + "\n"


def _head(app: cyclopts.App) -> Iterator[str]:
    yield "# The `anabranch` command"
    yield ""
    yield "`make command-doc` writes this page from the commands themselves; the tests run its"
    yield "examples. Each command shows its part with `--help`."
    yield ""
    for paragraph in EPILOGUE.strip().split("\n\n"):
        yield paragraph
        yield ""
    yield "Every command that talks to a cluster has these options:"
    yield ""
    listed = app["stream"]["list"]
    yield from _options(one for one in _arguments(listed) if _name(one) in SHARED)


def _chapters(app: cyclopts.App) -> Iterator[str]:
    for heading in CATALOGUE:
        yield f"## {heading.title}"
        yield ""
        yield from _entries(app, heading.entries, ("anabranch",))


def _entries(app: cyclopts.App, entries: Sequence[Entry], before: tuple[str, ...]) -> Iterator[str]:
    for entry in entries:
        path = (*before, entry.name)
        if isinstance(entry, Group):
            yield from _entries(app[entry.name], entry.members, path)
        else:
            yield from _command(app[entry.name], entry, path)


def _command(app: cyclopts.App, command: Command, path: tuple[str, ...]) -> Iterator[str]:
    yield f"### `{' '.join(path)}`"
    yield ""
    yield _description(app)
    yield ""
    own = _own(_arguments(app))
    positions = [one for one in own if not _name(one).startswith("-")]
    usage = [*path, *(f"[{_name(one)}]" if not one.required else _name(one) for one in positions)]
    yield "```text"
    yield " ".join([*usage, "[OPTIONS]"])
    yield "```"
    yield ""
    yield from _options(own)
    yield "```sh"
    yield from command.examples
    yield "```"
    yield ""


def _own(arguments: Sequence[Any]) -> list[Any]:
    """The arguments without those that stand in the table at the top."""
    names = {_name(one) for one in arguments}
    shared = SHARED if "--http" in names and "--output" in names else frozenset[str]()
    return [one for one in arguments if _name(one) not in shared]


def _description(app: cyclopts.App) -> str:
    """The docstring without its parameters, which stand in the table."""
    assert app.default_command is not None
    text = inspect.cleandoc(app.default_command.__doc__ or "")
    return text.partition("\nParameters\n")[0].strip()


def _arguments(app: cyclopts.App) -> list[Any]:
    found = app.assemble_argument_collection(parse_docstring=True)
    return [one for one in found if one.show and one.parse]


def _name(argument: Any) -> str:
    return str(argument.names[0]) if argument.names else ""


def _options(arguments: Iterator[Any] | Sequence[Any]) -> Iterator[str]:
    rows = [(_shown(one), " ".join((one.parameter.help or "").split())) for one in arguments]
    if not any(text or name.startswith("`-") for name, text in rows):
        return
    yield "| argument | meaning |"
    yield "|---|---|"
    for name, text in rows:
        yield f"| {name} | {text.replace('|', chr(92) + '|')} |"
    yield ""


def _shown(argument: Any) -> str:
    names = [str(name) for name in argument.names if not str(name).startswith("--no-")]
    default = argument.field_info.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    given = f" ({default})" if plain and str(default) else ""
    return ", ".join(f"`{name}`" for name in names) + given


if __name__ == "__main__":
    PATH.write_text(rendered())
