"""Loggers of the libraries: constant text plus fields, through the standard `logging` module.

    get_logger(__name__).warning("the connection is lost", server="n1")
        │
        ├─ in a program that configures nothing ──► silence
        ├─ under `logging.basicConfig`          ──► the connection is lost server='n1'
        └─ in a service (`runtime.logs`)        ──► a line of JSON with the text and the fields

The program chooses the lines to show, not the library. The logger `anabranch` therefore has a
handler that drops all lines, and all loggers here are below it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

ROOT = "anabranch"

logging.getLogger(ROOT).addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Line:
    """A log record's message; its `str` is for people."""

    text: str
    fields: Mapping[str, object]

    def __str__(self) -> str:
        return " ".join([self.text, *(f"{name}={value!r}" for name, value in self.fields.items())])


class Logger:
    """Logs constant text with fields.

    `fields` are part of the record. The field `exc_info` is an error whose traceback is logged.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, text: str, /, **fields: object) -> None:
        self._log(logging.DEBUG, text, fields)

    def info(self, text: str, /, **fields: object) -> None:
        self._log(logging.INFO, text, fields)

    def warning(self, text: str, /, **fields: object) -> None:
        self._log(logging.WARNING, text, fields)

    def error(self, text: str, /, **fields: object) -> None:
        self._log(logging.ERROR, text, fields)

    def _log(self, level: int, text: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            error = fields.pop("exc_info", None)
            shown = error if isinstance(error, BaseException) else None
            self._logger.log(level, Line(text, fields), exc_info=shown, stacklevel=3)


def get_logger(name: str) -> Logger:
    """The logger of a module, which is below `anabranch`."""
    assert name.startswith(f"{ROOT}."), "loggers are named by their modules"
    return Logger(name)
