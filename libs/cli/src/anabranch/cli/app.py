"""The application: which commands there are. Each module registers its own.

`--http` may stand before the command as well as after it; before it, it is handed on.
"""

from typing import Annotated

import cyclopts
from cyclopts import Parameter

from anabranch.cli import (
    cluster_commands,
    container_commands,
    controller_commands,
    group_commands,
    operation_commands,
    operation_list_commands,
    read_command,
    reshape_commands,
    scope_commands,
    segstore_commands,
    stream_commands,
    tier2_commands,
    transaction_commands,
    up,
    work_commands,
    write_command,
)
from anabranch.cli.demo import command as demo_command

app = cyclopts.App(
    name="anabranch",
    help="Elastic, tiered, exactly-once streams.",
    version_flags=(),
    help_flags=("--help", "-h"),
)

up.register(app)
scope_commands.register(app)
stream_commands.register(app)
reshape_commands.register(stream_commands.streams)
group_commands.register(app)
transaction_commands.register(app)
container_commands.register(app)
cluster_commands.register(app)
controller_commands.register(app)
operation_commands.register(app)
operation_list_commands.register(operation_commands.operations)
work_commands.register(operation_commands.operations)
segstore_commands.register(app)
tier2_commands.register(app)
write_command.register(app)
read_command.register(app)
demo_command.register(app)


@app.meta.default
def perform(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    http: str | None = None,
) -> object:
    """Perform a command line.

    Parameters
    ----------
    http
        Address of an HTTP gateway, e.g. http://127.0.0.1:8080: scope, stream, group, transaction,
        operation, write and read go through it and need no other port. ANABRANCH_HTTP says the
        same.
    """
    end = tokens.index("--") if "--" in tokens else len(tokens)
    handed_on = () if http is None else ("--http", http)
    return app(
        (*tokens[:end], *handed_on, *tokens[end:]),
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
    )


entry = app.meta
"""What a command line is given to: `app` behind the options that stand before a command."""
