"""Runs a command line and turns its end into an exit code.

0 done · 1 refused or failed, with one line that says what to do · 2 wrong usage · 130 Ctrl-C or
SIGTERM · 141 the reader of the output is gone. An error of the project prints no traceback.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence

from cyclopts import CycloptsError

from anabranch.cli.app import perform, words_of
from anabranch.cli.output import Form, print_error, print_usage_error
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.exit_codes import expected_errors

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def run(arguments: Sequence[str]) -> int:
    """Perform the command line; returns its exit code. Errors go to stderr."""
    form = form_of(arguments)
    try:
        result = perform(arguments)
        sys.stdout.flush()
    except CycloptsError as error:
        print_usage_error(str(error), " ".join(("anabranch", *words_of(arguments), "--help")), form)
        return EXIT_USAGE
    except (AnabranchError, BaseExceptionGroup) as raised:
        expected = expected_errors(raised)
        if not expected:
            raise
        for told in expected:
            print_error(told, form)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The buffered output can no longer be written, and Python would report that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_BROKEN_PIPE
    return result if isinstance(result, int) else 0


def form_of(arguments: Sequence[str]) -> Form:
    """The form of the output, for errors; also for a command line that cannot be parsed."""
    if "--json" in arguments:
        return Form.JSON
    for name, value in zip(arguments, (*arguments[1:], ""), strict=True):
        text = value if name in ("--output", "-o", "-O") else name.removeprefix("--output=")
        if text in (Form.JSON, Form.YAML) and (name != text):
            return Form(text)
    return Form.TABLE


def main() -> None:
    """The entry point of the `anabranch` program.

    SIGTERM ends it like Ctrl-C: a stopping member says goodbye, so that others need not wait for
    the end of its lease.
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
