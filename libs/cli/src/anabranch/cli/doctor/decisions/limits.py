"""Limits of this machine and of this process: files, memory, processors, ports. Pure."""

from dataclasses import dataclass

from anabranch.cli.doctor.finding import Finding, failure, note, ok, warning
from anabranch.cli.figures import counted, duration, size

FILES_MIN = 4_096
"""A store's 1,000 connections, a gateway's 800 with two sockets each, journals, tier 2."""
FILES_ENOUGH_TO_START = 1_024
MEMORY_BYTES_MIN = 1024 * 1024 * 1024
"""A store's cache of 256 MiB and its 64 MiB that wait for the journal; the mirror; the programs."""
MEMORY_FREE_BYTES_MIN = 256 * 1024 * 1024
PROCESSORS_MIN = 2
PORTS_MIN = 8_192
POLL_NS_DEFAULT = 200_000
POLL_FILE = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits. None: the system tells none.

    `memory_limit_bytes`: the control group's, `memory_bytes`: the machine's. `processors`
    counts those that this process may use, parts of one included. `poll_ns`: how long an idle
    processor of this virtual machine polls before it halts; None where the kernel does not poll.
    """

    files_soft: int | None
    files_hard: int | None
    memory_bytes: int
    memory_free_bytes: int
    memory_limit_bytes: int | None
    processors: float
    ports: tuple[int, int] | None
    poll_ns: int | None = None


def open_files(limits: Limits) -> Finding:
    """Whether a service can open all files and connections; it raises its soft limit itself."""
    hard = limits.files_hard
    if hard is None:
        return ok("the number of open files is not limited")
    told = f"a process may open {hard:,} files"
    if limits.files_soft is not None and limits.files_soft < hard:
        told += f" (soft limit {limits.files_soft:,}; services raise it)"
    remedy = f"raise the hard limit (ulimit -Hn, LimitNOFILE=) to {FILES_MIN:,} or more"
    if hard < FILES_ENOUGH_TO_START:
        return failure(told, remedy, files=hard)
    return warning(told, remedy, files=hard) if hard < FILES_MIN else ok(told, files=hard)


def memory(limits: Limits) -> Finding:
    """Whether a store, a controller and a gateway fit."""
    limit = min(limits.memory_limit_bytes or limits.memory_bytes, limits.memory_bytes)
    free = limits.memory_free_bytes
    told = f"{size(free)} of the machine's {size(limits.memory_bytes)} are free"
    if limit < limits.memory_bytes:
        told += f"; the control group allows {size(limit)}"
    figures = {"limit_bytes": limit, "free_bytes": free}
    if limit < MEMORY_BYTES_MIN:
        remedy = "give it 1 GiB or more, or lower ANABRANCH_SEGSTORE_CACHE_BYTES"
        return warning(told, remedy, **figures)
    if free < MEMORY_FREE_BYTES_MIN:
        return warning(told, "end other programs, or use a larger machine", **figures)
    return ok(told, **figures)


def processors(limits: Limits) -> Finding:
    """Whether the services need not take turns."""
    count = limits.processors
    told = (
        f"{counted(round(count), 'processor')}"
        if count == round(count)
        else f"{count:.1f} processors"
    )
    if count < PROCESSORS_MIN:
        return warning(
            f"{told}: the services take turns, and latencies grow",
            f"give it {PROCESSORS_MIN} or more processors",
            processors=count,
        )
    return ok(told, processors=count)


def halting(limits: Limits) -> Finding:
    """Whether an idle processor of a virtual machine halts at once. Its host must then wake it up
    for each packet and each sync that a program awaits."""
    poll_ns = limits.poll_ns
    if poll_ns is None:
        return ok("the kernel does not let idle processors poll")
    if poll_ns == 0:
        return note(
            "an idle processor of this virtual machine halts at once, so the host must wake it up "
            "for each packet and each sync that a program awaits",
            f"write {POLL_NS_DEFAULT}, the kernel's own default, to {POLL_FILE}, if latency "
            "matters more than the host's power",
            poll_ns=poll_ns,
        )
    told = f"an idle processor polls for up to {duration(poll_ns / 1e6)} before it halts"
    return ok(told, poll_ns=poll_ns)


def ports(limits: Limits) -> Finding:
    """Whether there are enough ports for outgoing connections."""
    if limits.ports is None:
        return ok("this system tells no range of ports")
    low, high = limits.ports
    count = high - low + 1
    told = f"{count:,} ports ({low} to {high}) serve outgoing connections"
    if count < PORTS_MIN:
        return warning(told, "widen net.ipv4.ip_local_port_range", ports=count)
    return ok(told, ports=count)
