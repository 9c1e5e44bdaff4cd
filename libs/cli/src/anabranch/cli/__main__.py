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

from anabranch.cli.app import entry
from anabranch.cli.output import print_error, print_usage_error
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.exit_codes import expected_errors

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def run(arguments: Sequence[str]) -> int:
    """Perform the command line; returns its exit code. Errors go to stderr."""
    as_json = "--json" in arguments
    try:
        result = entry(
            list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
    except CycloptsError as error:
        print_usage_error(str(error), as_json)
        return EXIT_USAGE
    except (AnabranchError, BaseExceptionGroup) as raised:
        expected = expected_errors(raised)
        if not expected:
            raise
        for told in expected:
            print_error(told, as_json)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The buffered output can no longer be written, and Python would report that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_BROKEN_PIPE
    return result if isinstance(result, int) else 0


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
