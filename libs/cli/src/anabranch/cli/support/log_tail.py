"""The newest part of a log file: at most so many bytes, and no lines before a time."""

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_NATS = re.compile(r"\[\d+\] (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)")
_REDIS = re.compile(r"\d+:\w (\d\d \w{3} \d{4} \d\d:\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Tail:
    """`cut_bytes`: the size of the file before the text."""

    text: str
    cut_bytes: int


def newest_part(file: Path, bytes_max: int) -> Tail:
    """The whole lines at the end of a regular file; never through a link. Raises OSError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        start = max(found.st_size - bytes_max, 0)
        source.seek(start)
        data = source.read(bytes_max)
    if start:
        _, _, data = data.partition(b"\n")  # The first line has lost its beginning.
        start = found.st_size - len(data)
    return Tail(data.decode(errors="replace"), start)


def lines_since(text: str, since_ms: int) -> Iterator[str]:
    """The lines from a time on. A line without a time belongs to the line before it."""
    keeping = False
    for line in text.splitlines():
        at_ms = line_time_ms(line)
        if at_ms is not None:
            keeping = at_ms >= since_ms
        if keeping:
            yield line


def line_time_ms(line: str) -> int | None:
    """The time of a line of a service, of NATS, or of Redis; None if it shows none.

    The servers write the machine's local time.
    """
    if line.startswith("{"):
        return _own_time_ms(line)
    for pattern, form in ((_NATS, "%Y/%m/%d %H:%M:%S"), (_REDIS, "%d %b %Y %H:%M:%S")):
        if match := pattern.match(line):
            return _local_ms(match[1], form)
    return None


def _own_time_ms(line: str) -> int | None:
    try:
        return int(datetime.fromisoformat(json.loads(line)["at"]).timestamp() * 1000)
    except (ValueError, KeyError, TypeError):
        return None


def _local_ms(text: str, form: str) -> int | None:
    try:
        return int(datetime.strptime(text, form).astimezone().timestamp() * 1000)
    except ValueError:
        return None
