"""Where `anabranch consume` begins in each partition. Pure."""

from dataclasses import dataclass

from cyclopts import CycloptsError

from anabranch.client.reading.times.instants import looks_like_time, parse_time
from anabranch.client.topics.offsets import Offset


@dataclass(frozen=True, slots=True)
class ConsumeStart:
    """A start, and the words about it that continue "Consuming records from …"."""

    offset: Offset
    text: str


def start_of(
    *, beginning: int | None, head: int | None, tail: int | None, start: str | None
) -> ConsumeStart:
    """The start that the options name; the end without one.

    Raises CycloptsError for two starts, or a start that is neither a number nor a time.
    """
    named = {
        "--beginning": None if beginning is None else _from_beginning(beginning),
        "--head": None if head is None else _from_beginning(head),
        "--tail": None if tail is None else _from_end(tail),
        "--start": None if start is None else _absolute(start),
    }
    found = {option: one for option, one in named.items() if one is not None}
    if len(found) > 1:
        first, second, *_ = found
        raise CycloptsError(msg=f"the argument '{first}' cannot be used with '{second}'")
    return next(iter(found.values()), _from_end(0))


def _from_beginning(count: int) -> ConsumeStart:
    number = f"{count} " if count else ""
    text = f"starting {number}from the beginning of log"
    return ConsumeStart(Offset.from_beginning(count), text)


def _from_end(count: int) -> ConsumeStart:
    number = f"{count} " if count else ""
    return ConsumeStart(Offset.from_end(count), f"starting {number}from the end of log")


def _absolute(text: str) -> ConsumeStart:
    if text.isdecimal():
        return ConsumeStart(Offset.absolute(int(text)), f"starting at offset {text}")
    if looks_like_time(text):
        return ConsumeStart(Offset.at(parse_time(text)), f"starting at {text}")
    raise CycloptsError(msg=f"--start {text!r} is neither a record number nor a time")
