"""The group of commands `anabranch operation …`."""

import cyclopts

operations = cyclopts.App(name="operation", help="See what became of commands.")


def register(app: cyclopts.App) -> None:
    """Add the group to an application."""
    app.command(operations)
