"""Several NATS servers, and logs of containers in them: what a loss of one takes with it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.cli.doctor.decisions.nats import SYNC_REMEDY, KeptStream
from anabranch.cli.doctor.finding import (
    CannotLook,
    Finding,
    failure,
    listed,
    note,
    ok,
    warning,
)
from anabranch.cli.figures import counted
from anabranch.common.contracts import subjects
from anabranch.common.contracts.queries import NodeDescription
from anabranch.common.model.cluster import JETSTREAM, REPLICATED

REPLICAS_SAFE = 3
"""So many copies survive the loss of one NATS server, and the cluster goes on without it."""
_LOG_PREFIX = subjects.log_stream("")


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """A NATS server by its monitoring port. `problem`: why it did not answer; then `status` is
    empty. `place`: host and port."""

    place: str
    status: Mapping[str, object]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SharedLogs:
    """The stores, and all streams of the NATS servers."""

    stores: tuple[NodeDescription, ...]
    streams: tuple[KeptStream, ...]


@dataclass(frozen=True, slots=True)
class TierTwoPlace:
    """The stores, and the URL of tier 2; empty if it is not known."""

    stores: tuple[NodeDescription, ...]
    tier2: str


def nats_servers(found: Sequence[ServerSeen]) -> Finding:
    """Whether every NATS server answers, and syncs every write."""
    answering = [one for one in found if not one.problem]
    size = max([len(found), *(_cluster_size(one.status) for one in answering)])
    unsynced = [one.place for one in answering if not _syncs(one.status)]
    silent = [f"{one.place} ({one.problem})" for one in found if one.problem]
    if unsynced:
        return failure(
            f"{counted(len(unsynced), 'NATS server')} of {size} may lose acknowledged messages in "
            f"a loss of power: {listed(unsynced)}",
            SYNC_REMEDY,
        )
    if silent:
        told = f"{counted(len(silent), 'NATS server')} of {size} cannot be asked: {listed(silent)}"
        remedy = "start it again; if it runs, open its monitoring port to this machine"
        most_answer = 2 * len(answering) > size
        return warning(told, remedy) if most_answer else failure(told, remedy)
    if len(found) < size:
        return warning(
            f"{len(found)} of {size} NATS servers are known; they sync every write",
            "name the monitoring ports of all, separated by commas, with --nats-monitor",
        )
    return ok(f"{counted(size, 'NATS server')}, all answer and sync every write")


def log_replicas(found: SharedLogs) -> Finding:
    """Whether the logs in NATS survive the loss of a NATS server."""
    logs = [one for one in found.streams if one.name.startswith(_LOG_PREFIX)]
    kinds = {one.log for one in found.stores}
    if not logs and JETSTREAM in kinds:
        return ok("no container has a log in NATS yet")
    if not logs and REPLICATED in kinds:
        return ok("no log is in NATS: the stores replicate them")
    if not logs:
        return ok("every container's log is in the journal of its store")
    least = min(one.replicas for one in logs)
    told = f"{counted(len(logs), 'log')} in NATS, {counted(least, 'replica')} each at least"
    if least < REPLICAS_SAFE:
        return note(
            f"{told}: the disk of one NATS server holds the only copy of the newest events",
            "run three NATS servers, set ANABRANCH_SEGSTORE_LOG_REPLICAS=3, and move the "
            "containers; docs/operations.md says how",
            replicas=least,
        )
    return ok(told, replicas=least)


def tier2_place(found: TierTwoPlace) -> Finding:
    """Whether tier 2 outlives a machine as shared logs do."""
    kinds = {one.log for one in found.stores}
    if not kinds & {JETSTREAM, REPLICATED}:
        return ok("every container's log is in the journal of its store")
    if not found.tier2:
        raise CannotLook(
            "the place of tier 2 is not known", "set ANABRANCH_TIER2_URL to the URL of tier 2"
        )
    if found.tier2.startswith("file:"):
        logs = "the logs are in NATS" if JETSTREAM in kinds else "stores replicate the logs"
        return note(
            f"tier 2 is in a directory, while {logs}: if the disk of the directory is "
            "lost, all events but the newest are lost with it",
            "take an object store for tier 2, or a directory that outlives the machine",
        )
    return ok("logs and tier 2 outlive a machine")


def _syncs(status: Mapping[str, object]) -> bool:
    config = status.get("config")
    return isinstance(config, Mapping) and bool(config.get("sync_always"))


def _cluster_size(status: Mapping[str, object]) -> int:
    """The NATS servers of the cluster, as the server itself knows it."""
    meta = status.get("meta_cluster")
    size = meta.get("cluster_size") if isinstance(meta, Mapping) else None
    return size if isinstance(size, int) else 1
