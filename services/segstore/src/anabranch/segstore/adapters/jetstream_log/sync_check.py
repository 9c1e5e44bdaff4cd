"""Whether every NATS server of a log's stream syncs each write before it answers.

JetStream itself does not tell. Each server's monitoring port does, under the server's name, so the
check needs the addresses of all of them. A server that was found to sync is not asked again while
the store runs: the setting changes only with a restart of the server, after which the next start of
a store sees it.
"""

from collections.abc import Mapping, Sequence

from anabranch.common.adapters.nats_monitor import ask_servers
from anabranch.common.errors import LogNotSynced

MONITOR_SETTING = "ANABRANCH_SEGSTORE_NATS_MONITOR_URLS"
SYNC_SETTING = "ANABRANCH_SEGSTORE_LOG_SYNC"
_UNLESS = f"or set {SYNC_SETTING}=unchecked if a loss of power may take acknowledged events with it"


class MonitoredSync:
    """Asks the monitoring ports at `urls`."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._synced: set[str] = set()

    async def ask(self) -> Mapping[str, bool]:
        """Ask all servers, and return by name whether each one that answers syncs always.

        A store asks at its start, so that a later open does not wait for a server that is dead.
        """
        asked = {one.name: one.syncs for one in await ask_servers(self._urls)}
        self._synced.update(name for name, synced in asked.items() if synced)
        return asked

    async def check(self, peers: tuple[str, ...]) -> None:
        """Require that all servers with these names sync always. Raises LogNotSynced."""
        if self._synced.issuperset(peers):
            return
        asked = await self.ask()
        for peer in peers:
            if peer in self._synced:
                continue
            if peer in asked:
                raise LogNotSynced(
                    "a NATS server acknowledges messages of a log before they are on the disk",
                    remedy="write `sync_interval: always` into the block `jetstream` of the "
                    f"server's configuration, {_UNLESS}",
                    server=peer,
                )
            raise LogNotSynced(
                "no monitoring port of a NATS server that stores a log answers",
                remedy=f"name the monitoring URLs of all servers in {MONITOR_SETTING}, {_UNLESS}",
                server=peer,
            )


async def unchecked(peers: tuple[str, ...]) -> None:
    """Accept any server."""
    del peers
