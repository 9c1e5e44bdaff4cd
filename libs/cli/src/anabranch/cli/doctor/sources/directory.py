"""The cluster of a data directory of `anabranch up`: its ports, its addresses, whether it runs.

Blocking; reads only, and takes no lock. Of the configuration of NATS it takes the monitoring
address alone, because the file also has the password.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from anabranch.common.runtime.addresses import ENDPOINTS_FILE

LOOPBACK = "127.0.0.1"
LOCKS = Path("/proc/locks")
_TIER2 = Path("segstore", "tier2")
_MONITOR = re.compile(r'^http: "([0-9.]+:\d+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Directory:
    """`foreign`: it belongs to another user, and shows nothing. `held`: a cluster runs in it.
    `health`: the services' health ports by the parts' names; empty unless a cluster runs. Addresses
    are empty if they are not known; `nats_monitor` has one for each NATS server, separated by
    commas."""

    exists: bool = False
    foreign: bool = False
    held: bool = False
    published: bool = False
    gateway: str = ""
    nats_monitor: str = ""
    redis: str = ""
    tier2: str = ""
    health: Mapping[str, str] = field(default_factory=dict)


def directory(root: Path, locks: Path = LOCKS) -> Directory:
    """The directory as it is now. A cluster that starts or stops meanwhile may be half seen."""
    if root.is_dir() and not os.access(root, os.R_OK | os.X_OK):
        return Directory(exists=True, foreign=True)
    held = is_held(root / "lock", locks)
    endpoints = _endpoints(root / ENDPOINTS_FILE)
    socket = (root / "run" / "redis.sock").absolute()
    return Directory(
        exists=root.is_dir(),
        held=held,
        published=endpoints is not None,
        gateway=str((endpoints or {}).get("gateway", "")),
        nats_monitor=_monitors(root / "run") if held else "",
        redis=f"unix://{quote(str(socket))}" if held and socket.is_socket() else "",
        tier2=(root / _TIER2).absolute().as_uri() if (root / _TIER2).is_dir() else "",
        health=_health(root / "run") if held else {},
    )


def is_held(lock: Path, locks: Path = LOCKS) -> bool:
    """Whether a process holds the lock of the directory, by the kernel's list of locks.

    On a system without that list, a lock file counts as held while the process in it lives.
    """
    try:
        inode = lock.stat().st_ino
    except OSError:
        return False
    text = _text(locks)
    if text or locks.exists():
        # The inode alone: some file systems (btrfs) list another device than `stat` tells.
        return any("FLOCK" in line and f":{inode} " in line for line in text.splitlines())
    holder = _text(lock)
    return holder.isdigit() and Path("/proc", holder).exists()


def _endpoints(file: Path) -> Mapping[str, object] | None:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _monitors(folder: Path) -> str:
    files = sorted(folder.glob("nats*.conf"), key=lambda file: file.stem)
    texts = [_text(file) for file in files]
    return ",".join(f"http://{found[1]}" for found in map(_MONITOR.search, texts) if found)


def _health(folder: Path) -> dict[str, str]:
    found = {}
    for file in sorted(folder.glob("*.port")):
        port = _text(file)
        if port.isdigit():
            found[file.stem] = f"http://{LOOPBACK}:{port}"
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
