"""How help looks in a pipe or a file: aligned columns, without boxes and colours."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.help import DefaultFormatter
    from rich.console import Console

WIDTH = 100


def plain_help() -> tuple["Console", "DefaultFormatter"]:
    """The console and the formatter. They are imported here because only help needs them."""
    from cyclopts.help import DefaultFormatter, PanelSpec
    from rich.box import Box
    from rich.console import Console

    blank = Box("\n".join(["    "] * 8))
    panel = PanelSpec(box=blank, padding=(0, 0, 0, 4), title_align="left")
    return Console(width=WIDTH, color_system=None), DefaultFormatter(panel_spec=panel)
