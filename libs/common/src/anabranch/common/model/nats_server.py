"""What a NATS server tells about itself. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MonitoredServer:
    """A server, and whether JetStream on it syncs every write before it answers."""

    server_id: str
    name: str
    syncs: bool


def monitored_server(answer: Mapping[str, object]) -> MonitoredServer | None:
    """The server that gave this answer to `/varz`; None if it is not such an answer.

    nats-server 2.10 to 2.15 include `sync_always` if it is set, and omit it otherwise.
    """
    match answer:
        case {
            "server_id": str(server_id),
            "server_name": str(name),
            "jetstream": {"config": {"sync_always": True}},
        }:
            return MonitoredServer(server_id, name, True)
        case {"server_id": str(server_id), "server_name": str(name)}:
            return MonitoredServer(server_id, name, False)
    return None


def serving_servers(described: Mapping[str, object]) -> tuple[str, ...]:
    """The names of the servers that now store what a stream takes, by its description.

    A replica that is away for some ten seconds is not among them. A server without a cluster does
    not name itself.
    """
    match described.get("cluster"):
        case {"leader": str(leader), "replicas": list(replicas)}:
            others = [one for one in replicas if one.get("current")]
            return (leader, *(str(one.get("name")) for one in others))
        case {"leader": str(leader)}:
            return (leader,)
    return ()
