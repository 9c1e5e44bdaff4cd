"""Builds the parser of a command line from the catalogue.

Only the command whose words were typed is imported. All others are names with a line of help, so
`anabranch --help` is fast, and a missing optional package breaks its own command only.

Options that say which cluster is meant and how results are shown may stand before the command:
`anabranch --http URL stream list demo`. They are handed on to the command, so a command without
such an option refuses it.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import cyclopts

from anabranch.cli.catalogue import CATALOGUE, ENTRIES, Command, Entry, Group
from anabranch.cli.plain_help import plain_help

PACKAGE = "anabranch.cli"
LEADING_WITH_VALUE = ("--http", "--nats", "--data-dir", "--context", "--output", "-o")
LEADING_FLAGS = ("--json",)
HELP_FLAGS = ("--help", "-h")
EPILOGUE = """\
Which cluster? An option (--http, --nats, --data-dir, --context) beats an environment variable
(ANABRANCH_HTTP, ANABRANCH_NATS_URL, ANABRANCH_DATA_DIR, ANABRANCH_CONTEXT), which beats the
current context (anabranch context use), which beats the directory out/anabranch. These options
and --output table|json|yaml may also stand before the command.

Exit codes: 0 done; 1 refused or failed, with one line that says what to do; 2 wrong usage;
130 interrupted; 141 the reader of the output is gone.
"""


def perform(tokens: Sequence[str]) -> object:
    """Perform a command line; returns the command's result.

    Raises CycloptsError for wrong usage, and the errors of the command.
    """
    words = completed(handed_on(tokens))
    return application(words)(
        words, exit_on_error=False, print_error=False, result_action="return_value"
    )


def handed_on(tokens: Sequence[str]) -> list[str]:
    """The command line with its leading options moved behind the command's own."""
    taken = 0
    while taken < len(tokens):
        if tokens[taken] in LEADING_WITH_VALUE:
            taken += 2
        elif tokens[taken] in LEADING_FLAGS or tokens[taken].startswith(
            tuple(f"{name}=" for name in LEADING_WITH_VALUE)
        ):
            taken += 1
        else:
            break
    leading, rest = tokens[:taken], tokens[taken:]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *leading, *rest[end:]]


def completed(words: Sequence[str]) -> list[str]:
    """The command line with the numbers of those options that stand without theirs."""
    command, end = _command_of(words), words.index("--") if "--" in words else len(words)
    found: list[str] = []
    for place, word in enumerate(words):
        found.append(word)
        number = command.if_alone.get(word) if command and place < end else None
        if number is not None and not "".join(words[place + 1 : place + 2]).isdecimal():
            found.append(number)
    return found


def _command_of(words: Sequence[str]) -> Command | None:
    entries: Sequence[Entry] = ENTRIES
    for word in words:
        entry = next((one for one in entries if one.name == word), None)
        if isinstance(entry, Command) or entry is None:
            return entry
        entries = entry.members
    return None


def application(words: Sequence[str] | None) -> cyclopts.App:
    """The parser. Only the command that `words` begin with is imported; None imports all."""
    app = cyclopts.App(
        name="anabranch",
        help="Elastic, tiered, exactly-once streams.",
        help_epilogue=EPILOGUE,
        help_flags=HELP_FLAGS,
        help_format="plaintext",
        default_parameter=cyclopts.Parameter(negative_iterable="", show_default=_shown_default),
        version=_version,
        version_flags=("--version", "-V"),
    )
    if words is not None and not sys.stdout.isatty() and _asks_for_help(words):
        app.console, app.help_formatter = plain_help()
    app["--help"].group = app["--version"].group = cyclopts.Group("Options", sort_key=99)
    for number, heading in enumerate(CATALOGUE):
        group = cyclopts.Group(heading.title, sort_key=number)
        for place, entry in enumerate(heading.entries):
            _add(app, entry, words, sort_key=place, group=group)
    return app


def _add(
    app: cyclopts.App,
    entry: Entry,
    words: Sequence[str] | None,
    *,
    sort_key: int,
    group: cyclopts.Group | None = None,
) -> None:
    typed = words is None or (len(words) > 0 and words[0] == entry.name)
    placed: dict[str, Any] = {"sort_key": sort_key} | ({"group": group} if group else {})
    if isinstance(entry, Group):
        inner = cyclopts.App(
            name=entry.name, help=entry.help, help_epilogue="", version_flags=(), **placed
        )
        inner["--help"].show = False
        rest = None if words is None else words[1:]
        for place, member in enumerate(entry.members if typed else ()):
            _add(inner, member, rest, sort_key=place)
        app.command(inner)
    elif typed:
        app.command(
            function_of(entry),
            name=entry.name,
            help_epilogue=_examples(entry),
            version_flags=(),
            **placed,
        )
    else:
        app.command(f"{PACKAGE}.{entry.target}", name=entry.name, help=entry.help, **placed)


def function_of(command: Command) -> Callable[..., object]:
    """Import the function of a command."""
    module, _, name = command.target.partition(":")
    function: Callable[..., object] = getattr(import_module(f"{PACKAGE}.{module}"), name)
    return function


def words_of(tokens: Sequence[str]) -> tuple[str, ...]:
    """The words of the command or group that a command line begins with; empty for none."""
    found: list[str] = []
    entries: Sequence[Entry] = ENTRIES
    for word in handed_on(tokens):
        entry = next((one for one in entries if one.name == word), None)
        if entry is None:
            break
        found.append(word)
        entries = entry.members if isinstance(entry, Group) else ()
    return tuple(found)


def _examples(command: Command) -> str:
    lines = "\n".join(f"  {example}" for example in command.examples)
    return f"Examples:\n{lines}\n" if lines else ""


def _asks_for_help(words: Sequence[str]) -> bool:
    only_words = len(words_of(words)) == len(words)
    return only_words or any(flag in words for flag in HELP_FLAGS)


def _shown_default(value: object) -> Any:
    """The default as help shows it; None hides one that only says "nothing given"."""
    return None if value in ("", False, None, ()) else str(value)


def _version() -> str:
    from importlib.metadata import version

    python = ".".join(str(part) for part in sys.version_info[:3])
    return f"anabranch {version('anabranch-cli')} (Python {python})"
