"""What the figures were taken on: the machine, the bare sync of its disk, processor time.

All of it is read from `/proc`, so it costs next to nothing while something is being measured.
"""

import os
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from anabranch.cli.doctor.sources.limits import poll_ns
from bench.clock import Stopwatch
from bench.stats import percentile

PROBE_SIZE_BYTES = 4096
PROBE_COUNT = 400
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SECTOR_SIZE_BYTES = 512
_PAGE_SIZE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STEAL_INDEX = 7
"""Of `steal` among user, nice, system, idle, iowait, irq, softirq, steal."""


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time that processes have used so far, in user and kernel mode."""
    return sum(_ticks(pid) for pid in pids) / _TICKS_PER_SECOND


def _ticks(pid: int) -> int:
    # The second field is the program's name in parentheses and may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def written_bytes(directory: Path) -> int | None:
    """Bytes that the disk under a directory has been given to write so far, by whomever.

    None where the kernel does not tell. What a process's own counter tells is no substitute: it
    counts the whole of a large page for every byte that changes in it.
    """
    device = directory.stat().st_dev
    counters = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    if not counters.exists():
        return None
    return int(counters.read_text().split()[6]) * _SECTOR_SIZE_BYTES


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that processes hold at the moment."""
    return 1024 * sum(_number_after(f"/proc/{pid}/status", "VmRSS:") for pid in pids)


def _number_after(path: str, name: str) -> int:
    lines = Path(path).read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def sync_probe(directory: Path, clock: Stopwatch) -> dict[str, float]:
    """p50 and p99 of writing and syncing 4 KB to a preallocated, zero-filled file."""
    path = directory / "probe"
    page = os.urandom(PROBE_SIZE_BYTES)
    path.write_bytes(bytes(PROBE_SIZE_BYTES * PROBE_COUNT))
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.fsync(descriptor)
        times_ms = []
        for index in range(PROBE_COUNT):
            started = clock.now()
            os.pwritev(descriptor, [page], index * PROBE_SIZE_BYTES, os.RWF_DSYNC)
            times_ms.append((clock.now() - started) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return {
        "sync_4k_p50_ms": round(percentile(times_ms, 50), 3),
        "sync_4k_p99_ms": round(percentile(times_ms, 99), 3),
    }


class StealMeter:
    """How much of the machine's time its host gave to others, since this was made."""

    def __init__(self) -> None:
        self._before = _times_now()

    def percent(self) -> float:
        return stolen_percent(self._before, _times_now())


def processor_times(stat: str) -> tuple[int, ...]:
    """The first line of `/proc/stat` → ticks of all processors together, from `user` to `steal`.

    Time of guests comes after `steal` and is left out, because the kernel counts it in `user` too.
    """
    return tuple(int(text) for text in stat.partition("\n")[0].split()[1 : _STEAL_INDEX + 2])


def stolen_percent(before: Sequence[int], after: Sequence[int]) -> float:
    """The share of the time between two readings of `processor_times` that the host stole.

    0 where the kernel does not count it, where no time has passed, and where a counter went back,
    as it can when a virtual machine moves to another host.
    """
    spent = [max(0, now - then) for then, now in zip(before, after, strict=True)]
    total = sum(spent)
    if total == 0 or len(spent) <= _STEAL_INDEX:
        return 0.0
    return round(100 * spent[_STEAL_INDEX] / total, 2)


def describe(directory: Path) -> dict[str, object]:
    """The machine's class and the versions of what is compared; no name of the machine."""
    return {
        "poll_ns": poll_ns(),
        "cpu_model": _first_field("/proc/cpuinfo", "model name"),
        "cpu_count": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * _PAGE_SIZE_BYTES / 2**30),
        "kernel": platform.release(),
        "file_system": file_system_of(directory),
        "python": platform.python_version(),
        "clients": _versions(("nats-py", "redis", "hiredis", "uvloop", "confluent-kafka")),
        "load_1m_before": round(os.getloadavg()[0], 2),
    }


def _versions(distributions: Iterable[str]) -> dict[str, str]:
    """Those of the distributions that are installed."""
    found = {}
    for name in distributions:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def file_system_of(directory: Path) -> str:
    """The type of the file system that holds a directory, e.g. ``ext4``."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if directory.resolve().is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def _times_now() -> tuple[int, ...]:
    return processor_times(Path("/proc/stat").read_text())


def _first_field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"
