"""Where `anabranch consume` begins and ends in each partition. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from cyclopts import CycloptsError

from anabranch.client.reading.times.instants import looks_like_time, parse_time


class From(StrEnum):
    """What the number of a start counts from."""

    BEGINNING = "beginning"
    END = "end"
    ABSOLUTE = "absolute"
    TIME = "time"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class ConsumeStart:
    """`number`: so many records after the beginning or before the end, an absolute record number,
    or Unix milliseconds; of no meaning for a committed offset."""

    kind: From
    number: int = 0

    @property
    def text(self) -> str:
        """As it continues "Consuming records …"."""
        match self.kind:
            case From.BEGINNING if not self.number:
                return "starting from the beginning of log"
            case From.BEGINNING:
                return f"starting {self.number} from the beginning of log"
            case From.END if not self.number:
                return "starting from the end of log"
            case From.END:
                return f"starting {self.number} from the end of log"
            case From.ABSOLUTE:
                return f"starting at offset {self.number}"
            case From.TIME:
                return "starting at the given time"
            case From.COMMITTED:
                return "starting after the committed offset"


def start_of(
    *,
    beginning: int | None,
    head: int | None,
    tail: int | None,
    start: str | None,
    consumer: str | None,
) -> ConsumeStart:
    """The start that the options name; the end without one, or a named consumer's offset.

    Raises CycloptsError for two starts, or a start that is neither a number nor a time.
    """
    named: dict[str, ConsumeStart] = {}
    if beginning is not None:
        named["--beginning"] = ConsumeStart(From.BEGINNING, beginning)
    if head is not None:
        named["--head"] = ConsumeStart(From.BEGINNING, head)
    if tail is not None:
        named["--tail"] = ConsumeStart(From.END, tail)
    if start is not None:
        named["--start"] = _absolute(start)
    if len(named) > 1:
        first, second, *_ = named
        raise CycloptsError(msg=f"the argument '{first}' cannot be used with '{second}'")
    if any(one.number < 0 for one in named.values()):
        raise CycloptsError(msg=f"{next(iter(named))} counts records from 0 on")
    if named:
        return next(iter(named.values()))
    return ConsumeStart(From.COMMITTED) if consumer else ConsumeStart(From.END)


def _absolute(text: str) -> ConsumeStart:
    if text.isdecimal():
        return ConsumeStart(From.ABSOLUTE, int(text))
    if looks_like_time(text):
        return ConsumeStart(From.TIME, parse_time(text))
    raise CycloptsError(msg=f"--start {text!r} is neither a record number nor a time")
