"""A process that writes to a table index for ever.

``python -m kit.table_index_child <directory>`` prints ``written <n>`` after write number n, which
`apply` describes. It ends by itself after some seconds.
"""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from anabranch.segstore.adapters.table_index.rocks import RocksIndexes
from anabranch.segstore.domain.table.tail import Outcome, Requests, TailEntry
from anabranch.segstore.ports_table import IndexState
from kit.rng import seeded
from kit.table_index import SMALL

LIFE_S = 60
TABLES = 3
KEYS = 3000
ENTRIES = 80
CLIENTS = 5

Written = tuple[int, tuple[int, int], Mapping[bytes, TailEntry], Mapping[bytes, Requests]]


def write_number(number: int) -> Written:
    """What write `number` (from 1) writes; it goes to table `number % TABLES`."""
    rng = seeded(number)
    entries = {}
    for each in range(ENTRIES):
        value = None if rng.random() < 0.2 else b"%d " % number * (1 + int(rng.random() * 30))
        entries[b"%06d" % int(rng.random() * KEYS)] = TailEntry(number * 100 + each, 0, value)
    client = b"%016d" % (number % CLIENTS)
    return number * 100 + 100, (number * 100, number), entries, {client: {number: Outcome(number)}}


def main(directory: Path) -> None:
    """Write until the end of the process."""
    signal.alarm(LIFE_S)
    index = RocksIndexes(SMALL).open(directory)
    states = [IndexState(table) for table in range(TABLES)]
    number = 0
    while True:
        number += 1
        table = number % TABLES
        states[table] = index.write(states[table], *write_number(number))
        sys.stdout.write(f"written {number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
