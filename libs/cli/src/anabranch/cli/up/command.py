"""The command `anabranch up`: run an embedded cluster until it is asked to stop."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from anabranch.cli.up.cluster import UpSettings, embedded_cluster
from anabranch.cli.up.progress import Progress
from anabranch.common.errors import InvalidSetting

DATA_DIR_DEFAULT = Path("out/anabranch")


def up(
    *,
    data_dir: Annotated[Path | None, Parameter(env_var="ANABRANCH_DATA_DIR")] = None,
    tier2: str = "",
    ephemeral: Annotated[bool, Parameter(negative="")] = False,
    nats_port: int = 0,
    segstore_port: int = 0,
    gateway_port: int = 0,
    container_count: int = 4,
    otlp_endpoint: str = "",
    spus: Annotated[int, Parameter(name=("--spus", "--stores"))] = 1,
    controllers: int = 1,
    redis: bool = True,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Start a cluster on this machine and keep it running until Ctrl-C.

    Parameters
    ----------
    data_dir
        Directory of all data; created if needed (out/anabranch). One cluster at a time.
    tier2
        URL of tier 2: file:///directory, s3://bucket/prefix, gs://… or az://…; chosen once. By
        default a directory in the data directory.
    ephemeral
        Keep all data in memory only; it is lost when the cluster ends.
    nats_port
        Port of the NATS server on 127.0.0.1; 0 takes any free one.
    segstore_port
        Port of the segment store on 127.0.0.1; 0 takes any free one.
    gateway_port
        Port of the HTTP gateway on 127.0.0.1; 0 takes any free one.
    container_count
        Number of segment containers; chosen once, at the first start of a data directory.
    otlp_endpoint
        Collector for traces and metrics (OTLP over HTTP), as http://host:4318.
    spus
        Number of segment stores; they share tier 2 and the containers.
    controllers
        Number of controllers; if one dies, the others take over its work.
    redis
        Start Redis too, if its program is found; without it controllers share buckets by
        rendezvous.
    json
        Show progress as JSON lines.
    """
    settings = UpSettings(
        data_dir=_kept_in(data_dir, ephemeral=ephemeral),
        tier2_url=tier2,
        nats_port=nats_port,
        segstore_port=segstore_port,
        gateway_port=gateway_port,
        container_count=container_count,
        otlp_endpoint=otlp_endpoint,
        store_count=spus,
        controller_count=controllers,
        redis=redis,
    )
    asyncio.run(_run(settings, json))


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


async def _run(settings: UpSettings, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with Progress(Console(), as_json) as progress:
        async with embedded_cluster(settings, watch=progress.changed) as cluster:
            if not cluster.redis_url:
                progress.remark("redis", _why_without_redis(settings))
            progress.will_serve(cluster.endpoints, str(cluster.endpoints_file))
            await stop.wait()
        progress.stopped()


def _why_without_redis(settings: UpSettings) -> str:
    why = "no redis-server found" if settings.redis else "disabled by --no-redis"
    return f"{why}: buckets by rendezvous"
