"""The sources about this machine. Everything here may block, so each runs in a daemon thread."""

from collections.abc import Mapping
from pathlib import Path

from anabranch.cli.doctor.decisions.networks import Directories
from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.once import blocking
from anabranch.cli.doctor.place import Place
from anabranch.cli.doctor.sources.clock import clock_status
from anabranch.cli.doctor.sources.disk import disk_of, sync_times
from anabranch.cli.doctor.sources.limits import limits
from anabranch.cli.doctor.sources.mounts import directories
from anabranch.cli.doctor.sources.packages import packages
from anabranch.common.runtime.clock import Clock


class Machine:
    """`packages`, `disk`, `directories`, `sync`, `limits`, `clock_status`: each gathered once."""

    def __init__(self, place: Place, environment: Mapping[str, str], clock: Clock) -> None:
        self._place = place
        self.packages = blocking("packages", packages)
        self.disk = blocking("disk", lambda: disk_of(self._data_dir(), environment))
        self.directories = blocking("mounts", lambda: self._directories(environment))
        self.sync = blocking("sync", lambda: sync_times(self._data_dir(), clock))
        self.limits = blocking("limits", limits)
        self.clock_status = blocking("clock", clock_status)

    def _directories(self, environment: Mapping[str, str]) -> Directories:
        place = self._place
        named = [*place.directories, *([] if place.data_dir is None else [place.data_dir])]
        found = directories(named, place.tier2, environment)
        if not found.mounted:
            raise CannotLook("no directory on this machine is known", "name it with --directory")
        return found

    def _data_dir(self) -> Path:
        if self._place.data_dir is None:
            raise CannotLook(
                "no data directory on this machine is known", "name it with --data-dir"
            )
        return self._place.data_dir
