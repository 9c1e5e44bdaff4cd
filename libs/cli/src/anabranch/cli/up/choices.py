"""The choices that a data directory keeps for good: its number of NATS servers, its kind of log.

They are in the directory's format file. A directory with one NATS server and logs in the stores'
journals has format 1, as earlier releases wrote it. Any other has format 2, which those releases
refuse: they would start one NATS server of three, and look for logs in the wrong place.

    {"format": 1}
    {"format": 2, "nats_servers": 3, "log": "jetstream"}
"""

import json
from dataclasses import dataclass
from typing import Literal, get_args

from anabranch.common.errors import InvalidSetting

Log = Literal["journal", "jetstream"]
"""The place of the containers' logs: the journal of each store, or streams of the NATS servers,
which any store can open."""
LOGS: tuple[Log, ...] = get_args(Log)
NATS_COUNTS = (1, 3)
FORMAT = 2
"""The newest format that this release knows."""
PLAIN_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Choices:
    """The default is the choice of every directory of format 1."""

    nats_count: int = 1
    log: Log = "journal"

    def as_text(self) -> str:
        """The content of the format file."""
        if self == PLAIN:
            return json.dumps({"format": PLAIN_FORMAT}) + "\n"
        body = {"format": FORMAT, "nats_servers": self.nats_count, "log": self.log}
        return json.dumps(body) + "\n"


PLAIN = Choices()


@dataclass(frozen=True, slots=True)
class Wish:
    """The choices that the caller of a start makes. None: those of the directory, or the default
    ones for a new directory."""

    nats_count: int | None = None
    log: Log | None = None


NO_WISH = Wish()


def format_in(text: str) -> int:
    """The format in a format file. Raises ValueError, KeyError, TypeError if it has none."""
    return int(json.loads(text)["format"])


def choices_in(text: str) -> Choices:
    """The choices in a format file of a known format. Raises ValueError, KeyError, TypeError."""
    if format_in(text) == PLAIN_FORMAT:
        return PLAIN
    body = json.loads(text)
    count, log = int(body["nats_servers"]), body["log"]
    if count not in NATS_COUNTS or log not in LOGS:
        raise ValueError("no such choice")
    return Choices(count, log)


def agreed(kept: Choices | None, wish: Wish) -> Choices:
    """The choices of this start; `kept` None: the directory is new. Raises InvalidSetting."""
    found = kept or PLAIN
    wanted = Choices(wish.nats_count or found.nats_count, wish.log or found.log)
    if kept is None or wanted == kept:
        return wanted
    differs = wanted.nats_count != kept.nats_count
    option = f"--nats {kept.nats_count}" if differs else f"--log {kept.log}"
    raise InvalidSetting(
        "the data directory was made with another choice, which cannot be changed",
        remedy=f"start it with {option} or without this option, or choose another --data-dir",
        nats_servers=kept.nats_count,
        log=kept.log,
    )
