"""A process that writes to a table index for ever.

``python -m kit.table_index_child <directory>`` prints ``written <n>`` after write number n, which
`write_number` describes. It exits when its input ends, while the writer still runs, or is killed
after some seconds.
"""

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from anabranch.common.errors import Unavailable
from anabranch.segstore.adapters.table_index.rocks import RocksIndexes
from anabranch.segstore.domain.table.tail import Outcome, TailEntry
from anabranch.segstore.ports_table import IndexState, TableIndex
from kit.rng import seeded
from kit.table_index import SMALL, Written, write

LIFE_S = 60
TABLES = 3
KEYS = 3000
ENTRIES = 80
CLIENTS = 5


def write_number(number: int) -> Written:
    """What write `number` (from 1) writes; it goes to table `number % TABLES`."""
    rng = seeded(number)
    entries = {}
    for each in range(ENTRIES):
        value = None if rng.random() < 0.2 else b"%d " % number * (1 + int(rng.random() * 30))
        entries[b"%06d" % int(rng.random() * KEYS)] = TailEntry(number * 100 + each, 0, value)
    client = b"%016d" % (number % CLIENTS)
    return number * 100 + 100, (number * 100, number), entries, {client: {number: Outcome(number)}}


def write_on(index: TableIndex) -> None:
    """Write until the index is closed."""
    states = [IndexState(table) for table in range(TABLES)]
    number = 0
    with suppress(Unavailable):
        while True:
            number += 1
            table = number % TABLES
            states[table] = write(index, states[table], *write_number(number))
            sys.stdout.write(f"written {number}\n")
            sys.stdout.flush()


def main(directory: Path) -> None:
    """Write until the input ends."""
    signal.alarm(LIFE_S)
    index = RocksIndexes(SMALL).open(directory)
    threading.Thread(target=write_on, args=(index,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
