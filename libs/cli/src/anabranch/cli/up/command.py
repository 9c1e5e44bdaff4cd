"""The command `anabranch up`: run an embedded cluster until it is asked to stop."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.target import DATA_DIR_DEFAULT
from anabranch.cli.up.choices import Log
from anabranch.cli.up.cluster import EmbeddedCluster, embedded_cluster
from anabranch.cli.up.progress import Place, Progress
from anabranch.cli.up.registration import Registration, registered
from anabranch.cli.up.settings import UpSettings
from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.clock import SystemClock

TICK_S = 0.25


@Parameter(name="*")
@dataclass(frozen=True)
class Ports:
    """Ports on 127.0.0.1. 0 takes any free one."""

    nats_port: int = 0
    "Port of the first NATS server on 127.0.0.1; 0 takes any free one."
    segstore_port: int = 0
    "Port of the first segment store on 127.0.0.1; 0 takes any free one."
    gateway_port: int = 0
    "Port of the HTTP gateway on 127.0.0.1; 0 takes any free one."


_LOG = (
    "Place of the logs: journal, in each store; or jetstream, in NATS, where any store can open "
    "them (journal); chosen once."
)
_REPLICATION = (
    "Number of stores that keep each log, of which any can open it; needs as many --spus; chosen "
    "once."
)


@Parameter(name="*")
@dataclass(frozen=True)
class Logs:
    """The place of the containers' logs, chosen once."""

    log: Annotated[Log | None, Parameter(help=_LOG)] = None
    replication: Annotated[int | None, Parameter(help=_REPLICATION)] = None


_ANY_PORTS = Ports()
_USUAL_LOGS = Logs()


def up(
    *,
    data_dir: Annotated[Path | None, Parameter(env_var="ANABRANCH_DATA_DIR")] = None,
    tier2: str = "",
    ephemeral: Annotated[bool, Parameter(negative="")] = False,
    ports: Ports = _ANY_PORTS,
    container_count: int = 4,
    otlp_endpoint: str = "",
    spus: Annotated[int | None, Parameter(name=("--spus", "--stores"))] = None,
    controllers: int = 1,
    nats: int | None = None,
    logs: Logs = _USUAL_LOGS,
    redis: bool = True,
    context: str = "local",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Start a cluster on this machine and keep it running until Ctrl-C.

    Parameters
    ----------
    data_dir
        Directory of all data; created if needed (out/anabranch). One cluster at a time.
    tier2
        URL of tier 2: file:///directory, s3://bucket/prefix, gs://… or az://…; chosen once.
    ephemeral
        Keep all data in memory only; it is lost when the cluster ends.
    container_count
        Number of segment containers; chosen once, at the first start of a data directory.
    otlp_endpoint
        Collector for traces and metrics (OTLP over HTTP), as http://host:4318.
    spus
        Number of segment stores, the SPUs of the SPU group main (1, or as many as there were); they
        share tier 2 and the containers. `anabranch spg scale` changes it while the cluster runs.
    controllers
        Number of controllers; if one dies, the others take over its work.
    nats
        Number of NATS servers, 1 or 3 (1); chosen once. Three keep working when one is down.
    redis
        Start Redis too, if its program is found; without it buckets are shared by rendezvous.
    context
        The name by which `anabranch --context` finds the cluster; it ends with the cluster.
    json
        Show progress as JSON lines.
    """
    settings = UpSettings(
        data_dir=_kept_in(data_dir, ephemeral=ephemeral),
        tier2_url=tier2,
        **asdict(ports),
        container_count=container_count,
        otlp_endpoint=otlp_endpoint,
        store_count=spus,
        controller_count=controllers,
        nats_count=nats,
        **asdict(logs),
        redis=redis,
    )
    asyncio.run(_run(settings, context, json))


def _kept_in(data_dir: Path | None, *, ephemeral: bool) -> Path | None:
    """The data directory; None for an ephemeral cluster. Raises InvalidSetting."""
    if not ephemeral:
        return data_dir or DATA_DIR_DEFAULT
    if data_dir is not None:
        raise InvalidSetting(
            "an ephemeral cluster keeps nothing, so it has no data directory",
            remedy="omit --data-dir and ANABRANCH_DATA_DIR, or --ephemeral",
            data_dir=str(data_dir),
        )
    return None


async def _run(settings: UpSettings, context: str, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    begun_s = clock.monotonic() - process_age_s()
    with Progress(sys.stdout, clock, begun_s, as_json=as_json) as progress:
        async with (
            embedded_cluster(settings, watch=progress.changed) as cluster,
            _registered(context, cluster) as registration,
        ):
            if registration.trouble:
                progress.remark("context", f"not registered: {registration.trouble}")
            if not cluster.redis_url:
                progress.remark("redis", _why_without_redis(settings))
            progress.will_serve(_place(settings, cluster, registration))
            trouble = ""
            while not stop.is_set():
                if cluster.spu_trouble != trouble:
                    trouble = cluster.spu_trouble
                    progress.remark("spu groups", trouble or "followed")
                progress.tick()
                await _wait(stop, TICK_S)
        progress.stopped()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, but not for longer."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


@contextlib.asynccontextmanager
async def _registered(context: str, cluster: EmbeddedCluster) -> AsyncIterator[Registration]:
    with registered(context, cluster.data_dir, os.environ) as registration:
        yield registration


def _place(settings: UpSettings, cluster: EmbeddedCluster, registration: Registration) -> Place:
    program = "anabranch" if shutil.which("anabranch") else str(_beside_python("anabranch"))
    return Place(
        endpoints=cluster.endpoints,
        endpoints_file=cluster.endpoints_file,
        data_dir=cluster.data_dir,
        is_found=registration.is_current,
        context=registration.name,
        is_kept=not settings.ephemeral,
        program=program,
    )


def _beside_python(program: str) -> Path:
    return Path(sys.executable).with_name(program)


def process_age_s() -> float:
    """The seconds since this process was started, as the kernel counts them; 0 if it does not
    tell them."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return 0.0
    return uptime_s - started_ticks / os.sysconf("SC_CLK_TCK")


def _why_without_redis(settings: UpSettings) -> str:
    why = "no redis-server found" if settings.redis else "disabled by --no-redis"
    return f"{why}: buckets by rendezvous"
