"""Whether the NATS server keeps acknowledged messages. Pure.

The metadata is stored once, so an acknowledged message must be on the disk. By default the server
syncs every two minutes, and a loss of power loses everything since. Only its monitoring port tells
whether it syncs every write, as ``jetstream.config.sync_always`` (nats-server 2.10 to 2.15 include
it in ``/jsz`` if it is set, and omit it otherwise).
"""

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from anabranch.common.errors import MetadataNotSynced

SYNC_SETTING = "ANABRANCH_CONTROLLER_NATS_SYNC"
MONITOR_SETTING = "ANABRANCH_CONTROLLER_NATS_MONITOR_URL"
_UNLESS = f"or set {SYNC_SETTING}=unchecked if a loss of power may take the last metadata with it"


class _StoreConfig(BaseModel):
    sync_always: bool = False


class _JetStreamStatus(BaseModel):
    server_id: str
    config: _StoreConfig
    disabled: bool = False


def check_synced(status: Mapping[str, object], connected_to: str) -> None:
    """Require that the server with this `status` (`/jsz?config=1`) syncs every write.

    `connected_to` is the id of the server that holds the metadata. Raises MetadataNotSynced.
    """
    try:
        found = _JetStreamStatus.model_validate(status)
    except ValidationError as error:
        raise MetadataNotSynced(
            "the NATS monitoring port's answer is not JetStream's state",
            remedy=f"correct {MONITOR_SETTING}, {_UNLESS}",
        ) from error
    if found.server_id != connected_to:
        raise MetadataNotSynced(
            "the NATS monitoring port belongs to another server",
            remedy=f"correct {MONITOR_SETTING}, {_UNLESS}",
            monitored=found.server_id,
            connected=connected_to,
        )
    if found.disabled or not found.config.sync_always:
        raise MetadataNotSynced(
            "the NATS server acknowledges metadata before it is on the disk",
            remedy="write `sync_interval: always` into the block `jetstream` of the server's "
            f"configuration, {_UNLESS}",
            server=found.server_id,
        )
