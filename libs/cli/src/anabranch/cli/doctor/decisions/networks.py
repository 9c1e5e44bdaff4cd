"""Directories on network file systems, where stores refuse journals and, at first, tier 2. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.cli.doctor.finding import Finding, failure, listed, note, ok, warning
from anabranch.common.storage.mounts import Mount, OnNetwork, is_network, refusal

_FUSE = "fuse"
_REMEDY = "use a local disk, or an object store; docs/tier2.md says what a file system must promise"


@dataclass(frozen=True, slots=True)
class Mounted:
    """A directory and its mount; None: the machine has no mount table."""

    path: str
    mount: Mount | None

    @property
    def kind(self) -> str:
        return "unknown" if self.mount is None else self.mount.kind

    @property
    def is_served(self) -> bool:
        """Whether a program of this machine (FUSE) or another machine serves the directory."""
        return is_network(self.kind) or self.kind.partition(".")[0] == _FUSE

    @property
    def text(self) -> str:
        """The directory with its file system, and where that comes from if it is served."""
        source = f" from {self.mount.source}" if self.mount is not None and self.is_served else ""
        return f"{self.path} ({self.kind}{source})"


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories to look at. `on_network`: what the settings of this machine accept."""

    mounted: Sequence[Mounted]
    on_network: OnNetwork


def _refusals(on_network: OnNetwork) -> Sequence[tuple[OnNetwork, Callable[..., Finding], str]]:
    """What the stores would accept, the verdict on a directory that they refuse then, its text."""
    return (
        ("accepted", failure, "stores refuse journals and tier 2 there"),
        (on_network, warning, "stores refuse journals there, and tier 2 until you accept it"),
    )


def network_directories(found: Directories) -> Finding:
    """Whether a directory is on a network file system. The finding names those of the worst kind:
    refused in any case, refused until they are accepted, accepted, and unknown ones of FUSE."""
    mounted = found.mounted
    for on_network, verdict, told in _refusals(found.on_network):
        refused = {one: refusal(one.mount, one.path, on_network) for one in mounted}
        errors = [error for error in refused.values() if error is not None]
        if errors:
            names = [one.text for one, error in refused.items() if error is not None]
            return verdict(f"{listed(names)}: {told}", errors[0].remedy, count=len(names))
    if accepted := [one.text for one in mounted if is_network(one.kind)]:
        return note(
            f"{listed(accepted)}: accepted for tier 2, and stores refuse journals there",
            _REMEDY, count=len(accepted),
        )  # fmt: skip
    if served := [one.text for one in mounted if one.is_served]:
        return warning(
            f"{listed(served)}: the doctor does not know whether this file system keeps what it "
            "has synced",
            _REMEDY, count=len(served),
        )  # fmt: skip
    return ok(f"no directory is on a network: {listed([one.text for one in mounted])}")
