"""A process that appends to a journal for ever and says what was acknowledged.

``python -m kit.journal_child <directory> [process]`` prints ``acked <sequence>`` after each
acknowledgement and ``failed <code>`` at the end. With ``process`` a writer process does the
writes, and ``writer <pid>`` is printed first. It ends by itself after some seconds.
"""

import signal
import sys
from pathlib import Path

from anabranch.common.runtime.ids import SystemIds
from anabranch.segstore.adapters.journal.commits import InlineCommits
from anabranch.segstore.adapters.journal.local import open_local_journal
from kit.fixed_catalog import run_at_once
from kit.log_driver import ScriptedSource
from kit.writer_child import ChildCallbacks

FILE_SIZE = 64 * 1024
LIFE_S = 30
CONTAINER = 0
LOG_ID = "log-0"


def payload(sequence: int) -> bytes:
    """What operation `sequence` consists of."""
    return b"%08d" % sequence * 40


def main(directory: Path, *, by_process: bool) -> None:
    """Append until the journal fails."""
    signal.alarm(LIFE_S)
    callbacks = ChildCallbacks()
    opened = open_local_journal(
        directory,
        ids=SystemIds(),
        schedule=callbacks,
        file_size=FILE_SIZE,
        choose_commits=lambda _, lock: callbacks.start(lock.fd) if by_process else InlineCommits(),
    )
    for child in callbacks.children:
        sys.stdout.write(f"writer {child.pid}\n")
    source = ScriptedSource()
    run_at_once(opened.journal.create_log(CONTAINER, LOG_ID))
    view = run_at_once(opened.journal.open_log(CONTAINER, LOG_ID, 1, source))
    while not source.failures:
        sequence = source.next_sequence
        source.put(payload(sequence))
        view.ready()
        callbacks.run()
        if sequence in source.durable:
            sys.stdout.write(f"acked {sequence}\n")
            sys.stdout.flush()
    sys.stdout.write(f"failed {source.failures[0].code}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), by_process="process" in sys.argv[2:])
