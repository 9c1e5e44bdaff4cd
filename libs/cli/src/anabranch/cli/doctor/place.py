"""Where the cluster is: every address that options, environment and data directory name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.sources.directory import Directory
from anabranch.cli.target import DATA_DIR_DEFAULT, Target, shown_address

MONITOR_VARIABLES = (
    "ANABRANCH_CONTROLLER_NATS_MONITOR_URL",
    "ANABRANCH_SEGSTORE_NATS_MONITOR_URLS",
)
TIER2_VARIABLES = (
    "ANABRANCH_TIER2_URL",
    "ANABRANCH_SEGSTORE_TIER2_URL",
    "ANABRANCH_CONTROLLER_TIER2_URL",
)
REDIS_VARIABLE = "ANABRANCH_CONTROLLER_REDIS_URL"
NO_CLUSTER = "no cluster runs in this data directory"


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses; an empty one is not known. `target` None: only this machine is looked at.

    `data_dir`: the data directory, if it is on this machine. `directories`: more of this machine's
    directories, which the command line names. `health`: the base URLs of the
    services' health ports, by the names under which findings mention them.
    """

    target: Target | None
    data_dir: Path | None
    directory: Directory = field(default_factory=Directory)
    gateway: str = ""
    nats_monitor: str = ""
    """The monitoring ports of the NATS servers, separated by commas."""
    redis: str = ""
    tier2: str = ""
    health: Mapping[str, str] = field(default_factory=dict)
    directories: tuple[Path, ...] = ()

    @property
    def absent(self) -> bool:
        """Whether the target is a data directory in which no cluster runs."""
        found = self.directory
        named = self.target is not None and bool(self.target.context.data_dir)
        return named and not (found.held or found.published or found.foreign)

    def out_of_reach(self, reason: str, remedy: str) -> CannotLook:
        """The reason to skip a check, for an address that is not known."""
        return CannotLook(NO_CLUSTER) if self.absent else CannotLook(reason, remedy)

    @property
    def shown(self) -> str:
        """The cluster's address for people, without a password."""
        return shown_address(self.target.context) if self.target is not None else "this machine"


def data_dir_of(target: Target, option: Path | None) -> Path | None:
    """The data directory that belongs to the target; None: it is not known to be here.

    An option or variable beside an address names the directory of that cluster's files on this
    machine.
    """
    if option is not None:
        return option
    named = target.beside or target.context.data_dir
    return Path(named) if named else None


@dataclass(frozen=True, slots=True)
class Named:
    """The addresses that the command line names; they beat all others."""

    nats_monitor: str = ""
    redis: str = ""
    health: tuple[str, ...] = ()


def place_of(
    target: Target,
    found: Directory,
    data_dir: Path | None,
    named: Named,
    environ: Mapping[str, str],
) -> Place:
    """The place of a cluster. `found`: the content of its data directory."""
    services = dict(found.health) | {url: url for url in named.health}
    return Place(
        target=target,
        data_dir=data_dir,
        directory=found,
        gateway=target.context.http or found.gateway,
        nats_monitor=named.nats_monitor or _first(environ, MONITOR_VARIABLES) or found.nats_monitor,
        redis=named.redis or environ.get(REDIS_VARIABLE, "") or found.redis,
        tier2=_first(environ, TIER2_VARIABLES) or found.tier2,
        health=services,
    )


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of the variables that is set; empty if none is."""
    return next((environ[name] for name in names if environ.get(name)), "")


def this_machine(option: Path | None, environ: Mapping[str, str]) -> Place:
    """The place of a look at this machine alone, without a cluster."""
    named = environ.get("ANABRANCH_DATA_DIR", "")
    return Place(None, option or (Path(named) if named else DATA_DIR_DEFAULT))
