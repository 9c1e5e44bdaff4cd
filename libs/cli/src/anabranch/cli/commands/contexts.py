"""The commands `anabranch context …`: named clusters, and the one that commands talk to."""

import os
from pathlib import Path

from anabranch.cli.contexts import (
    Context,
    Contexts,
    change_contexts,
    contexts_file,
    load_contexts,
)
from anabranch.cli.figures import NONE
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, Shown
from anabranch.cli.target import shown_address
from anabranch.common.errors import InvalidRequest

COLUMNS = ("", "context", "by", "address", "registered by")
_SHOWN = Shown()
_HERE = Connection()


def add(
    name: str,
    /,
    *,
    http: str = "",
    nats: str = "",
    data_dir: Path | None = None,
    shown: Shown = _SHOWN,
) -> None:
    """Save a cluster's address under a name.

    The first context becomes the current one.

    Parameters
    ----------
    http
        Address of an HTTP gateway, e.g. https://streams.example.com.
    nats
        URL of the cluster's NATS server, or the path of its endpoints file.
    data_dir
        Data directory of a cluster on this machine.
    """
    directory = str(data_dir.absolute()) if data_dir else ""
    if bool(http) + bool(nats) + bool(directory) != 1:
        raise InvalidRequest(
            "a context has one address", remedy="give one of --http, --nats and --data-dir"
        )
    file = contexts_file(os.environ)
    context = Context(http=http, nats=nats, data_dir=directory)

    def change(saved: Contexts) -> Contexts:
        added = saved.add(name, context)
        return added if added.current else added.use(name)

    change_contexts(file, change)
    Output(shown.form).done(f"saved context {name}", {"context": name, "file": str(file)})


def use(name: str, /, *, shown: Shown = _SHOWN) -> None:
    """Choose the cluster of later commands."""
    change_contexts(contexts_file(os.environ), lambda saved: saved.use(name))
    Output(shown.form).done(f"commands now talk to {name}", {"context": name})


def list_all(*, shown: Shown = _SHOWN) -> None:
    """List the saved contexts; the current one is marked."""
    saved = load_contexts(contexts_file(os.environ))
    named = sorted(saved.named.items())
    rows = [("*" if name == saved.current else "", name, *_row(context)) for name, context in named]
    records = [
        {
            "context": name,
            "current": name == saved.current,
            "by": context.kind,
            "address": shown_address(context),
        }
        for name, context in named
    ]
    Output(shown.form).rows(COLUMNS, rows, records)


def show(*, connection: Connection = _HERE) -> None:
    """Show which cluster a command without options would talk to, and why."""
    target = connection.target
    record = {
        "by": target.context.kind,
        "address": shown_address(target.context),
        "because_of": target.why,
        "file": str(contexts_file(os.environ)),
    }
    Output(connection.form).details("cluster", record)


def remove(name: str, /, *, shown: Shown = _SHOWN) -> None:
    """Forget a saved context."""
    change_contexts(contexts_file(os.environ), lambda saved: saved.remove(name))
    Output(shown.form).done(f"removed context {name}", {"context": name})


def _row(context: Context) -> tuple[str, str, str]:
    by = f"anabranch up ({context.up_pid})" if context.up_pid else NONE
    return context.kind, shown_address(context), by
