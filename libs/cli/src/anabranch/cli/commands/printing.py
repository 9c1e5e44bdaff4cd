"""Prints what arrives in batches: to standard output or a file, in any form, with progress."""

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing, closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from anabranch.cli.byte_target import ByteTarget, new_file, standard_output
from anabranch.cli.transfer_progress import NO_TERMINAL, TransferProgress, shows_progress
from anabranch.client.serializers import require_pyarrow
from anabranch.common.errors import CodecMissing, InvalidRequest
from anabranch.common.runtime.clock import SystemClock

STDOUT = 1

B = TypeVar("B")
C = TypeVar("C", contravariant=True)


class Printer(Protocol[C]):
    """Prints batches of one kind."""

    def write(self, batch: C) -> None: ...

    def close(self) -> None:
        """Print the end, behind the last batch."""
        ...


class TextPrinter(Generic[B]):
    """Prints each batch in a form that needs no end, and shows it at once."""

    def __init__(self, form: Callable[[B], bytes], target: ByteTarget) -> None:
        self._form = form
        self._target = target

    def write(self, batch: B) -> None:
        self._target.write(self._form(batch))
        self._target.flush()

    def close(self) -> None:
        """Nothing follows."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Standard output, or a file that is replaced."""

    file: Path | None = None

    @property
    def is_on_terminal(self) -> bool:
        return self.file is None and sys.stdout.isatty()

    def target(self) -> AbstractContextManager[ByteTarget]:
        """The open destination. Raises InvalidRequest for a file that cannot be written."""
        return standard_output() if self.file is None else new_file(self.file)

    def check_binary(self, form: StrEnum, *, example: str) -> None:
        """Check that a form that is no text has a suitable destination; `example`: a file's name
        for Parquet. Raises InvalidRequest."""
        if form == "parquet" and self.file is None:
            raise InvalidRequest("a Parquet file needs a name", remedy=f"add --file {example}")
        if self.is_on_terminal:
            raise InvalidRequest(
                "a terminal cannot show binary output", output=form,
                remedy="add --file, or send the output to a file or another command",
            )  # fmt: skip


def require_arrow() -> None:
    """Check that columns can be printed. Raises CodecMissing without pyarrow."""
    try:
        require_pyarrow()
    except CodecMissing as error:
        raise CodecMissing(
            "the forms arrow and parquet require a package that is not installed",
            remedy="pip install 'anabranch[arrow]'",
            **error.fields,
        ) from error


def refuse_both(template: str | None, form: StrEnum, default: StrEnum) -> None:
    """Raises InvalidRequest if there is a template beside another form than the default."""
    if template is not None and form is not default:
        raise InvalidRequest(
            "a template is a form of its own", remedy="give --format or --output", output=form
        )


async def print_batches(
    batches: AsyncGenerator[B, None],
    new_printer: Callable[[ByteTarget], Printer[B]],
    destination: Destination,
    size_of: Callable[[B], tuple[int, int]],
    *,
    things: str = "events",
) -> None:
    """Print all batches. A file is replaced when the first batch has come, or the end: a command
    that fails at its beginning leaves it alone. `size_of` counts a batch's things and bytes."""
    descriptor = STDOUT if destination.file is None else NO_TERMINAL
    stream = sys.stderr if shows_progress(sys.stderr, descriptor, os.environ) else None
    count = size_bytes = 0
    async with aclosing(batches):
        batch = await anext(batches, None)
        with (
            closing(TransferProgress(stream, SystemClock(), None, things=things)) as progress,
            destination.target() as target,
            closing(new_printer(target)) as printer,
        ):
            while batch is not None:
                printer.write(batch)
                if stream is not None:
                    more, more_bytes = size_of(batch)
                    count, size_bytes = count + more, size_bytes + more_bytes
                    progress.show(count, size_bytes, 0)
                batch = await anext(batches, None)
