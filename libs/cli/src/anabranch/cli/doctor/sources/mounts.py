"""The mounts of directories on this machine. Blocking: a server that hangs blocks the look."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from anabranch.cli.doctor.decisions.networks import Directories, Mounted
from anabranch.common.storage.location import DirectoryLocation, parse_location
from anabranch.common.storage.mounts import MOUNT_TABLE, SETTING, mount_at


def directories(
    named: Iterable[Path],
    tier2: str,
    environment: Mapping[str, str],
    table: Path = MOUNT_TABLE,
) -> Directories:
    """The directories, which need not exist, and the one of tier 2 if the URL names one.

    Raises InvalidSetting for another text than a URL.
    """
    location = parse_location(tier2) if tier2 else None
    paths = [*named, *([location.path] if isinstance(location, DirectoryLocation) else [])]
    accepted = environment.get(SETTING) == "accepted"
    return Directories(
        [Mounted(str(path), mount_at(path, table)) for path in dict.fromkeys(paths)],
        "accepted" if accepted else "refused",
    )
