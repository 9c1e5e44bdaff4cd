"""The application and its commands. Each module registers its own.

`--http` may stand before the command or after it; before it, it is passed on.
"""

from typing import Annotated

import cyclopts
from cyclopts import Parameter

from anabranch.cli import up
from anabranch.cli.commands import cluster as cluster_commands
from anabranch.cli.commands import containers as container_commands
from anabranch.cli.commands import controllers as controller_commands
from anabranch.cli.commands import groups as group_commands
from anabranch.cli.commands import operation_lists as operation_list_commands
from anabranch.cli.commands import operations as operation_commands
from anabranch.cli.commands import read as read_command
from anabranch.cli.commands import reshape as reshape_commands
from anabranch.cli.commands import retention as retention_command
from anabranch.cli.commands import scaling as scaling_commands
from anabranch.cli.commands import scopes as scope_commands
from anabranch.cli.commands import segstore as segstore_commands
from anabranch.cli.commands import streams as stream_commands
from anabranch.cli.commands import tier2 as tier2_commands
from anabranch.cli.commands import transactions as transaction_commands
from anabranch.cli.commands import watermarks as watermark_commands
from anabranch.cli.commands import work as work_commands
from anabranch.cli.commands import write as write_command
from anabranch.cli.demo import command as demo_command
from anabranch.cli.demo.by_load import command as demo_scaling_command

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
retention_command.register(stream_commands.streams)
scaling_commands.register(stream_commands.streams)
watermark_commands.register(stream_commands.streams)
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
demo_scaling_command.register(app)


@app.meta.default
def perform(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    http: str | None = None,
) -> object:
    """Perform a command line.

    Parameters
    ----------
    http
        Address of an HTTP gateway, e.g. http://127.0.0.1:8080: every command that talks to a
        running cluster goes through it and needs no other port. ANABRANCH_HTTP sets the same.
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
"""The entry of a command line: `app` after the options that stand before a command."""
