"""Three NATS servers that form one JetStream cluster, as processes of this machine.

Each server has a name, data and ports of its own, syncs every write, and keeps its place in the
cluster across `kill`, `stop`, `wipe` and `start`. A stream of three replicas has one on each.

    with nats_cluster() as cluster:
        client = await connect_nats(nats_target(cluster.url), "test")
        cluster.servers[0].kill()
        cluster.servers[0].wipe()
        cluster.servers[0].start()
        cluster.wait_for_leader()

Elections take seconds: a server that hears no leader waits four to nine seconds before it stands
for election.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from anabranch.common.runtime.ids import SystemIds
from kit.infra import LOOPBACK
from kit.infra.embedded import EmbeddedServer, find_program
from kit.infra.settings import PROBE_SECONDS, free_port, nats_config, nats_serves, wait_until

SERVER_COUNT = 3
LEADER_SECONDS_MAX = 40.0
LOG_SIZE_MAX = 4000


@dataclass
class ClusteredServer(EmbeddedServer):
    """One of the servers; `store_dir` has its JetStream data."""

    name: str = ""
    store_dir: Path = field(default_factory=Path)

    @property
    def is_running(self) -> bool:
        """Whether the process lives; it may be paused."""
        return self._is_alive()

    def wipe(self) -> None:
        """Delete its data, as a lost disk does. It must not run."""
        assert not self.is_running, "a server that runs keeps its data"
        shutil.rmtree(self.store_dir, ignore_errors=True)

    def meta_group(self) -> Mapping[str, object]:
        """What the server says about JetStream's own group: `leader`, `cluster_size`, `replicas`.

        Empty if it does not answer, or knows no group.
        """
        try:
            with urlopen(f"{self.monitor_url}/jsz", timeout=PROBE_SECONDS) as answer:
                found = json.load(answer).get("meta_cluster")
        except (OSError, HTTPException, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class NatsCluster:
    """Servers of one cluster."""

    servers: tuple[ClusteredServer, ...]

    @property
    def url(self) -> str:
        """All servers, as a setting `…_NATS_URL` takes them."""
        return ",".join(server.url for server in self.servers)

    @property
    def monitor_urls(self) -> str:
        """All monitoring ports, separated by commas."""
        return ",".join(server.monitor_url for server in self.servers)

    @property
    def monitor_url(self) -> str:
        """The same, as a setting `…_NATS_MONITOR_URL` takes them."""
        return self.monitor_urls

    def named(self, name: str) -> ClusteredServer:
        """The server with this name, such as the leader that a stream's description tells."""
        [found] = [server for server in self.servers if server.name == name]
        return found

    def restore(self) -> None:
        """Start the servers that were ended, and wait for a leader; none may be paused."""
        for server in self.servers:
            if not server.is_running:
                server.kill()  # takes leave of a process that ended by itself
                server.start()
        self.wait_for_leader()

    def wait_for_leader(self) -> str:
        """Wait until JetStream has a leader that is one of the running servers; return its name.

        Raises RuntimeError.
        """
        found: list[str] = []

        def is_led() -> bool:
            running = [server for server in self.servers if server.is_running]
            leaders = {str(server.meta_group().get("leader", "")) for server in running}
            found[:] = leaders
            return len(leaders) == 1 and leaders <= {server.name for server in running}

        if not wait_until(is_led, lambda: True, seconds_max=LEADER_SECONDS_MAX):
            logs = "\n".join(server.log.read_text()[-LOG_SIZE_MAX:] for server in self.servers)
            raise RuntimeError(f"JetStream has no leader: {found}\n{logs}")
        return found[0]


@contextmanager
def nats_cluster(count: int = SERVER_COUNT) -> Iterator[NatsCluster]:
    """Start `count` servers and wait for their leader; at the end kill them, delete their data."""
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-nats-cluster-") as directory,
        ExitStack() as ends,
    ):
        # Servers of another run that get one of these ports later must not join.
        name, route_ports = SystemIds().new_id(), [free_port() for _ in range(count)]
        cluster = NatsCluster(
            tuple(_server(Path(directory), name, number, route_ports) for number in range(count))
        )
        for server in cluster.servers:
            ends.callback(server.kill)  # the data goes, so nothing needs an orderly end
            server.start()
        cluster.wait_for_leader()
        yield cluster


def _server(directory: Path, cluster: str, number: int, route_ports: list[int]) -> ClusteredServer:
    name = f"nats-{number + 1}"
    home = directory / name
    home.mkdir()
    port, monitor_port = free_port(), free_port()
    config = home / "nats.conf"
    config.write_text(
        nats_config(
            listen=f"{LOOPBACK}:{port}",
            http=f"{LOOPBACK}:{monitor_port}",
            store_dir=str(home / "jetstream"),
            name=name,
        )
        + _cluster_block(cluster, number, route_ports)
    )
    return ClusteredServer(
        f"nats://{LOOPBACK}:{port}",
        (str(find_program("nats-server")), "--config", str(config)),
        home / "log",
        lambda: nats_serves(monitor_port),
        f"http://{LOOPBACK}:{monitor_port}",
        name=name,
        store_dir=home / "jetstream",
    )


def _cluster_block(cluster: str, number: int, route_ports: list[int]) -> str:
    routes = [f"nats://{LOOPBACK}:{port}" for port in route_ports]
    return (
        f'\ncluster {{\n  name: "{cluster}"\n'
        f'  listen: "{LOOPBACK}:{route_ports[number]}"\n'
        f"  routes: {json.dumps(routes)}\n}}\n"
    )
