"""The choices that a data directory keeps for good: its number of NATS servers, its kind of log.

They are in the directory's format file. A directory with one NATS server and logs in the stores'
journals has format 1, as earlier releases wrote it. Another one has format 2, or format 3 if stores
replicate the logs. Releases before such a format refuse it: they would start one NATS server of
three, or look for logs in the wrong place.

    {"format": 1}
    {"format": 2, "nats_servers": 3, "log": "jetstream"}
    {"format": 3, "nats_servers": 1, "log": "replicated", "replication": 3}
"""

import json
from dataclasses import dataclass
from typing import Literal, get_args

from anabranch.common.errors import InvalidSetting

Log = Literal["journal", "jetstream"]
"""The place of the containers' logs: the journal of each store, or streams of the NATS servers,
which any store can open."""
LOGS: tuple[Log, ...] = get_args(Log)
KeptLog = Log | Literal["replicated"]
"""The kind of log of a data directory; the stores replicate logs if the caller chose a number of
replicas."""
REPLICATION_MAX = 7
NATS_COUNTS = (1, 3)
FORMAT = 3
"""The newest format that this release knows."""
SHARED_FORMAT = 2
PLAIN_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Choices:
    """The default is the choice of every directory of format 1."""

    nats_count: int = 1
    log: KeptLog = "journal"
    replication: int = 0
    """The number of replicas of each log; 0 unless the stores replicate logs."""

    def as_text(self) -> str:
        """The content of the format file."""
        if self == PLAIN:
            return json.dumps({"format": PLAIN_FORMAT}) + "\n"
        body: dict[str, int | str] = {"nats_servers": self.nats_count, "log": self.log}
        if not self.replication:
            return json.dumps({"format": SHARED_FORMAT, **body}) + "\n"
        body["replication"] = self.replication
        return json.dumps({"format": FORMAT, **body}) + "\n"

    @property
    def log_option(self) -> str:
        """The option of the command that chooses this kind of log."""
        return f"--replication {self.replication}" if self.replication else f"--log {self.log}"


PLAIN = Choices()


@dataclass(frozen=True, slots=True)
class Wish:
    """The choices that the caller of a start makes. None: those of the directory, or the default
    ones for a new directory."""

    nats_count: int | None = None
    log: Log | None = None
    replication: int | None = None
    """The number of replicas of each log, which rules out a `log`."""


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
    replication = int(body["replication"]) if log == "replicated" else 0
    if count not in NATS_COUNTS or not 0 <= replication <= REPLICATION_MAX:
        raise ValueError("no such choice")
    if log not in LOGS and not replication:
        raise ValueError("no such choice")
    return Choices(count, log, replication)


def agreed(kept: Choices | None, wish: Wish) -> Choices:
    """The choices of this start; `kept` None: the directory is new. Raises InvalidSetting."""
    found = kept or PLAIN
    nats_count = wish.nats_count or found.nats_count
    if wish.replication:
        wanted = Choices(nats_count, "replicated", wish.replication)
    elif wish.log:
        wanted = Choices(nats_count, wish.log)
    else:
        wanted = Choices(nats_count, found.log, found.replication)
    if kept is None or wanted == kept:
        return wanted
    differs = wanted.nats_count != kept.nats_count
    option = f"--nats {kept.nats_count}" if differs else kept.log_option
    raise InvalidSetting(
        "the data directory was made with another choice, which cannot be changed",
        remedy=f"start it with {option} or without this option, or choose another --data-dir",
        nats_servers=kept.nats_count,
        log=kept.log,
    )
