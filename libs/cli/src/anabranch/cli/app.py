"""The application: which commands there are. Each module registers its own."""

import cyclopts

from anabranch.cli import (
    container_commands,
    read_command,
    scope_commands,
    segstore_commands,
    stream_commands,
    up,
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
container_commands.register(app)
segstore_commands.register(app)
write_command.register(app)
read_command.register(app)
demo_command.register(app)
