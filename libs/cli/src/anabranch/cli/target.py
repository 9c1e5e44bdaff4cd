"""Finds the cluster that a command talks to. Pure but for the file of contexts.

An option beats an environment variable, which beats the current context, which beats the default
directory. The first source that names a cluster decides; sources are never mixed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.contexts import Context, Contexts
from anabranch.common.errors import InvalidRequest, InvalidSetting
from anabranch.common.runtime.addresses import ENDPOINTS_FILE

DATA_DIR_DEFAULT = Path("out/anabranch")
_PASSWORD = re.compile(r"^([a-z+]+://)[^/]*@")
VARIABLES = {
    "http": "ANABRANCH_HTTP",
    "nats": "ANABRANCH_NATS_URL",
    "data_dir": "ANABRANCH_DATA_DIR",
    "context": "ANABRANCH_CONTEXT",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster's address. `why` says which source named it, for people.

    `beside`: the data directory that the same source names, also beside an address.
    """

    context: Context
    why: str
    beside: str = ""

    @property
    def address(self) -> str:
        """The URL of the gateway or of the NATS server, or the path of an endpoints file."""
        if self.context.data_dir:
            return str(Path(self.context.data_dir).absolute() / ENDPOINTS_FILE)
        return self.context.http or self.context.nats

    @property
    def data_dir(self) -> Path:
        """The directory of a cluster on this machine; the default one if the target has none."""
        named = self.beside or self.context.data_dir
        return Path(named) if named else DATA_DIR_DEFAULT


def find_target(
    options: Mapping[str, str | None],
    environment: Mapping[str, str],
    contexts: Callable[[], Contexts],
) -> Target:
    """The cluster. `options` has the keys of `VARIABLES`; an empty one sets its variable aside.

    Raises InvalidRequest if one source names two clusters or an unknown context, InvalidSetting for
    a gateway whose address is no URL.
    """
    given = {name: options.get(name) or "" for name in VARIABLES}
    named = {
        name: environment.get(variable, "") if options.get(name) is None else ""
        for name, variable in VARIABLES.items()
    }
    for values, words in (
        (given, {name: f"--{name.replace('_', '-')}" for name in VARIABLES}),
        (named, VARIABLES),
    ):
        addresses = [name for name in ("http", "nats", "context") if values[name]]
        # A directory beside an address serves the commands that read files.
        chosen = addresses or (["data_dir"] if values["data_dir"] else [])
        if len(chosen) > 1:
            raise InvalidRequest(
                f"{words[chosen[0]]} and {words[chosen[1]]} name two clusters",
                remedy="name one",
            )
        if chosen:
            name = chosen[0]
            context = _of(name, values[name], contexts)
            return _checked(context, words[name], values["data_dir"])
    saved = contexts()
    if saved.current:
        return _checked(saved.get(saved.current), f"current context {saved.current}")
    return Target(Context(data_dir=str(DATA_DIR_DEFAULT)), "default directory")


def _of(name: str, value: str, contexts: Callable[[], Contexts]) -> Context:
    if name == "context":
        return contexts().get(value)
    if name == "http":
        return Context(http=value)
    return Context(nats=value) if name == "nats" else Context(data_dir=value)


def _checked(context: Context, why: str, beside: str = "") -> Target:
    if context.http and not context.http.startswith(("http://", "https://")):
        raise InvalidSetting(
            "the address of the gateway begins with neither http:// nor https://",
            remedy="write it as http://host:port",
            url=context.http,
        )
    return Target(context, why, beside)


def shown_address(context: Context) -> str:
    """The address without the password that it may hold."""
    address = context.http or context.nats or context.data_dir
    return _PASSWORD.sub(r"\1***@", address)
