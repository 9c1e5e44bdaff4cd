"""Copies a torn tail to its own file, before a new file's header cuts it off for good."""

from contextlib import closing
from dataclasses import dataclass

from anabranch.common.errors import ObjectExists
from anabranch.common.storage.ports import Disk, DiskFile
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.domain.log.scan import TornTail


@dataclass(frozen=True, slots=True)
class TornCopy:
    """A copy to be made of the `torn` part of a file."""

    disk: Disk
    torn: TornTail
    file: DiskFile

    def perform(self) -> None:
        """Make the copy, durably, overwriting an unfinished one. Raises NoRoom, DiskFailed."""
        name = layout.torn_file(self.torn.file_id, self.torn.position)
        try:
            copy = self.disk.create(name)
        except ObjectExists:
            copy = self.disk.open(name)
        with closing(copy):
            data = self.file.read_stored(self.torn.position, self.torn.size)
            copy.write_synced([data], 0)
