"""Rows of the quick demo: readings of imagined sensors, generated without any other package.

Every sensor reports once in two hours, all of them in turn. A row follows from its number alone, so
every run writes the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from anabranch.cli.demo.source import Row

SENSOR_COUNT = 100
ROW_COUNT = 50_000
ROUND_MS = 2 * 3_600_000
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
_SCATTER = 2_654_435_761
"""Knuth's multiplier: consecutive numbers become unlike ones."""


class Reading(msgspec.Struct):
    """An event. `reading` counts the readings of the sensor from 0."""

    row: int
    sensor: str
    reading: int
    at: str
    celsius: float


@dataclass(frozen=True, slots=True)
class Sensors:
    """The first `count` readings."""

    count: int = ROW_COUNT
    stream: str = "demo/sensors"
    title: str = "Sensor readings, replayed"
    described: str = f"generated readings of {SENSOR_COUNT} sensors, with the sensor as routing key"

    def rows(self) -> Iterator[Row]:
        encode, begin_ms = msgspec.json.Encoder().encode, int(BEGIN.timestamp() * 1000)
        for number in range(self.count):
            turn, place = divmod(number, SENSOR_COUNT)
            time_ms = begin_ms + turn * ROUND_MS + place * ROUND_MS // SENSOR_COUNT
            at = datetime.fromtimestamp(time_ms // 1000, UTC).isoformat()
            sensor = f"sensor-{place:02}"
            reading = Reading(number, sensor, turn, at, celsius_of(number))
            yield Row(encode(reading), sensor, time_ms, at[:10])


def celsius_of(number: int) -> float:
    """A temperature from 15 to 25 degrees, in hundredths."""
    return 15 + (number * _SCATTER >> 8) % 1001 / 100
