"""Keeps parts of an embedded cluster down for a while, for demonstrations, trials and measurements.

    held = HeldParts(folder)
    async with embedded_cluster(settings, parts=lambda plan: held.holdable(cluster_parts(plan))):
        held.hold("segstore-2")      # then end the part's process: no other one takes its place
        held.release("segstore-2")   # now the part starts

The supervisor starts a part again as soon as its process ends. A part that is held becomes a shell
that waits for the file of the hold to go, and then becomes the part's program under the same
process id. The data of a held part may be deleted.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from anabranch.cli.up.cluster import EmbeddedCluster
from anabranch.cli.up.directory import numbered
from anabranch.cli.up.parts import PartSpec
from anabranch.cli.up.stores import SEGSTORE

_WAIT = 'while [ -e "$0" ]; do sleep 0.05; done; exec "$@"'


class HeldParts:
    """The holds are files in `folder`, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def holdable(self, parts: Iterable[PartSpec]) -> list[PartSpec]:
        """The parts, none of which waits for another one to start."""
        return [
            replace(part, command=("/bin/sh", "-c", _WAIT, self._file(part.name), *part.command),
                    needs=())
            for part in parts
        ]  # fmt: skip

    def hold(self, name: str) -> None:
        """Keep the part's next process from starting its program."""
        self._folder.mkdir(parents=True, exist_ok=True)
        Path(self._file(name)).touch()

    def release(self, name: str) -> None:
        """End the hold; harmless if there is none."""
        Path(self._file(name)).unlink(missing_ok=True)

    def is_held(self, name: str) -> bool:
        """Whether the part's next process waits."""
        return Path(self._file(name)).exists()

    def _file(self, name: str) -> str:
        return str(self._folder / f"{name}.hold")


def store_at(cluster: EmbeddedCluster, endpoint: str) -> str:
    """The name of the store that clients reach at ``host:port``."""
    endpoints = cluster.endpoints["segstores"]
    assert isinstance(endpoints, list)
    return numbered(SEGSTORE, len(endpoints))[endpoints.index(endpoint)]
