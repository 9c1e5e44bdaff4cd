"""Limits of this machine and process, from the kernel's files. Blocking; reads only.

`root` is where those files are; tests put others there.
"""

import os
import resource
from pathlib import Path

from anabranch.cli.doctor.decisions.limits import POLL_FILE, Limits

NO_LIMIT_BYTES = 1 << 60
"""The first version of control groups writes a number like this for no limit."""
ROOT = Path("/")


def limits(root: Path = ROOT) -> Limits:
    """The limits; those that the system does not tell are None, or 0 for sizes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory = _memory(root)
    return Limits(
        files_soft=None if soft == resource.RLIM_INFINITY else soft,
        files_hard=None if hard == resource.RLIM_INFINITY else hard,
        memory_bytes=memory.get("MemTotal", 0),
        memory_free_bytes=memory.get("MemAvailable", 0),
        memory_limit_bytes=memory_limit(root),
        processors=processors(root),
        ports=_ports(root),
        poll_ns=poll_ns(root),
    )


def memory_limit(root: Path = ROOT) -> int | None:
    """The lowest limit of memory of this process's control groups; None: no limit."""
    named = {**_levels(root, "", "memory.max"), **_levels(root, "memory", "memory.limit_in_bytes")}
    found = [int(text) for text in named.values() if text.isdigit()]
    return min((value for value in found if value < NO_LIMIT_BYTES), default=None)


def processors(root: Path = ROOT) -> float:
    """The processors that this process may use: those that it may run on, and its quota."""
    usable = float(len(os.sched_getaffinity(0)))
    for text in _levels(root, "", "cpu.max").values():
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.isdigit():
            usable = min(usable, int(quota) / int(period))
    for folder, text in _levels(root, "cpu", "cpu.cfs_quota_us").items():
        period = _text(folder / "cpu.cfs_period_us")
        if text.isdigit() and period.isdigit():
            usable = min(usable, int(text) / int(period))
    return usable


def _levels(root: Path, controller: str, file: str) -> dict[Path, str]:
    """The content of a file of this process's control group and of those above it.

    `controller` is empty for the second version, which has one hierarchy for all.
    """
    found = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if controller not in names.split(","):
            continue
        base = root / "sys/fs/cgroup" / controller
        inner = base / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if text := _text(folder / file):
                found[folder] = text
            if folder == base:
                break
    return found


def _memory(root: Path) -> dict[str, int]:
    """Bytes by the names of /proc/meminfo."""
    found = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        amount = rest.split()
        if amount and amount[0].isdigit():
            found[name] = int(amount[0]) * 1024
    return found


def _ports(root: Path) -> tuple[int, int] | None:
    words = _text(root / "proc/sys/net/ipv4/ip_local_port_range").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else None


def poll_ns(root: Path = ROOT) -> int | None:
    """How long the kernel lets an idle processor poll before it halts, as it does for guests."""
    if _text(root / "sys/devices/system/cpu/cpuidle/current_governor") != "haltpoll":
        return None
    text = _text(root / POLL_FILE.lstrip("/"))
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """The content of a small file; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
