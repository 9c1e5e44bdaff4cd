"""The style of every plot that the project draws: one font, one palette, one size of everything.

Only modules that draw import this one, because it imports matplotlib, an optional dependency.
People with any colour vision can distinguish the colours (those of Okabe and Ito), which also
differ in lightness. The module owns no state: the settings hold while a `drawing` is open.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)
SHADES = "viridis"
"""The colours of quantities: lighter is more."""
TEXT, QUIET, GRID, UNKNOWN = "#222222", "#595959", "#e3e3e3", "#d9d9d9"
WIDTH_INCHES = 9.0
DPI = 144
LABEL_GAP = 1 / 17
"""The least distance between the labels of two lines, as a share of the axis."""
THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")

_SETTINGS: Any = {
    "font.family": "DejaVu Sans",  # matplotlib brings it, so all machines draw the same
    "font.size": 10.0,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelpad": 6.0,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
}


class End(NamedTuple):
    """The end of a line, in data units, and the name that stands there."""

    x: float
    y: float
    name: str
    colour: str


@contextmanager
def drawing(path: Path, height_inches: float) -> Iterator[Figure]:
    """A figure in the style; leaving the block writes it to `path` as PNG."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
        yield figure
        figure.savefig(path, format="png", dpi=DPI)


def entitle(axes: Axes, title: str, note: str) -> None:
    """Write the title above the axes, and below it a smaller note on how to read the plot."""
    lines = note.count("\n") + 1
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=15 + 13 * lines)
    axes.annotate(
        note, (0, 1), (0, 9), xycoords="axes fraction", textcoords="offset points",
        fontsize=9.5, color=QUIET, va="bottom", linespacing=1.25,
    )  # fmt: skip


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Name lines to the right of the axes, far enough apart to be read.

    A dotted line leads from the end of a line to its name. Call it when all lines are drawn.
    """
    (low, high), right = axes.get_ylim(), axes.get_xlim()[1]
    gap = (high - low) * LABEL_GAP
    before = low - gap
    for end in sorted(ends, key=lambda one: one.y):
        y = max(end.y, before + gap)
        axes.plot(
            (end.x, right), (end.y, y), color=end.colour, linewidth=1, linestyle=":", clip_on=False
        )
        axes.annotate(
            end.name, (right, y), (4, 0), textcoords="offset points", color=end.colour,
            va="center", annotation_clip=False,
        )  # fmt: skip
        before = y
    axes.set_ylim(low, high)
    axes.set_xlim(right=right)
