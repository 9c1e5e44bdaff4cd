"""Settings of a segment store, from the environment (prefix ``ANABRANCH_SEGSTORE_``)."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import SettingsConfigDict

from anabranch.common.runtime.addresses import is_base_url
from anabranch.common.runtime.settings import NatsSettings
from anabranch.common.storage.location import ObjectOptions
from anabranch.common.storage.mounts import OnNetwork

_MIB = 1024 * 1024


def as_number(value: object) -> object:
    """The number in a variable's text; anything else as it is, for the type to refuse."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class SegstoreSettings(NatsSettings):
    """Sizes in bytes, times in seconds. One process serves one data directory."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        **{**NatsSettings.model_config, "env_prefix": "ANABRANCH_SEGSTORE_"}
    )

    data_dir: Path
    tier2_url: str = ""
    """Empty: the directory ``tier2`` in the data directory."""
    tier2_options: ObjectOptions = ObjectOptions()
    """For tier 2 in an object store: as JSON, or one by one as ``…_TIER2_OPTIONS__ENDPOINT``."""
    journal: Literal["disk", "memory", "jetstream", "replicated"] = "disk"
    """The home of the containers' logs. ``memory``: the store keeps nothing and writes no file; it
    requires the tier 2 ``memory:``. ``jetstream``: one NATS stream per container, so that any store
    can open it. ``replicated``: the journals of several stores, of which each can open it."""
    log_replicas: Annotated[Literal[1, 3], BeforeValidator(as_number)] = 1
    """The servers that store each log that is created, for ``journal=jetstream``."""
    log_sync: Literal["checked", "unchecked"] = "checked"
    """Whether an open requires that every server of a log syncs always."""
    nats_monitor_urls: str = "http://127.0.0.1:8222"
    """The monitoring URLs of all NATS servers that store logs, separated by commas."""
    tier2_loss: Literal["refused", "accepted"] = "refused"
    """Whether a log that outlives this machine may have a tier 2 that is lost with it: with
    ``journal=jetstream`` and ``journal=replicated``, a tier 2 in a directory requires
    ``accepted``."""
    tier2_network: OnNetwork = "refused"
    """Whether the directory of tier 2 may be on a network file system, whose server's promises the
    store cannot check: docs/tier2.md lists them."""
    objects_url: str = ""
    """The Redis server of the cluster's objects, such as redis://host:6380, as for the controllers;
    empty: NATS holds them."""
    peer_bind: str = "127.0.0.1:0"
    """Where the store listens for other stores, for ``journal=replicated``."""
    peer_advertise: str = ""
    """host:port that the store announces to other stores; empty: the address on which it listens
    for them."""
    node_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,80}$")] = ""
    """The node id of a new data directory, by which an SPU is registered; empty: it is drawn. A
    directory that has another one is refused."""
    spu_group: str = ""
    """The SPU group whose provisioner started the store; empty: none, and the controllers may
    register the store as a custom SPU."""
    rack: str = ""
    """The failure domain of this machine, such as its rack or zone, over which the containers of a
    dead store are spread."""
    join_token_file: Path | None = None
    """A file with the secret that the controllers demand of stores; empty: none."""
    journal_writer: Literal["auto", "inline", "process"] = "auto"
    """Where the journal is written and synced: in the event loop or in a child process; ``auto``
    takes the child process if the disk was slow to sync at the start."""
    bind: str = "127.0.0.1:0"
    advertise: str = ""
    """host:port that the store announces to clients; empty: the address on which it listens."""
    connections_max: Annotated[int, Field(ge=1)] = 1000
    """TCP connections at a time; further ones are refused."""
    connections_per_peer_max: Annotated[int, Field(ge=1)] = 500
    """The most connections from one address, so that no client alone locks the others out."""
    packet_s_max: Annotated[float, Field(gt=0)] = 60.0
    """The time limit of a packet from its first byte to its last, after which its connection is
    closed. A packet has up to 16 MiB."""
    unfinished_bytes_max: Annotated[int, Field(ge=64 * _MIB)] = 256 * _MIB
    """The memory for packets that clients have begun to send, for all connections together; one
    address gets at most half of it. Connections beyond it are not read until there is room."""
    take_over: bool = False
    """Do not wait for another process's lock on the data directory; the journal's fence ends
    that process."""
    flush_bytes: Annotated[int, Field(ge=_MIB)] = 64 * _MIB
    flush_age_s: Annotated[float, Field(gt=0)] = 30.0
    cache_bytes: Annotated[int, Field(ge=0)] = 256 * _MIB
    """The memory for reads: the newest appends of all segments and, up to a quarter of it,
    read-ahead data. Reads in progress (at most 24 MiB each, four at a time) and answers that
    clients have not taken (64 MiB) come on top."""
    segments_in_memory: Annotated[int, Field(ge=1)] = 10_000
    """Per container, tombstones included; idle ones beyond it are only in tier 2."""
    writer_expiry_s: Annotated[float, Field(ge=86400)] = 7 * 86400.0
    """How long the store remembers a writer's event number after its last append."""
    untiered_bytes_max: Annotated[int, Field(ge=_MIB)] = 1024 * _MIB
    """The most bytes that only the journal may hold, and the most bytes of the journal's files,
    of which at least four are permitted. Well before it, writers continue at the rate of tier 2;
    beyond it the store refuses them. A start reads about as much."""
    table_index_bytes: Annotated[int, Field(ge=8 * _MIB)] = 128 * _MIB
    """The memory for the indexes of all key-value tables: their caches and unwritten parts. Their
    files lie in the directory ``tables`` of the data directory and may be deleted at any time."""
    table_hot_bytes: Annotated[int, Field(ge=0)] = 64 * _MIB
    """The memory for entries of tables that were read."""
    table_unindexed_bytes_max: Annotated[int, Field(ge=_MIB)] = 64 * _MIB
    """The most bytes of a table segment that its index may lack; beyond it the store refuses
    updates until the index has caught up."""
    table_live_share: Annotated[float, Field(ge=0, le=0.9)] = 0.5
    """Table segments of which less than this share is live are compacted; 0: none. A larger share
    returns more space and writes more."""
    table_compact_s: Annotated[float, Field(gt=0)] = 30.0
    """The time between two checks for compaction."""
    gc_grace_s: Annotated[float, Field(gt=0)] = 3600.0
    """How long unreferenced objects of tier 2 stay: longer than any open, and than any read by a
    process that does not own the container."""
    rewrite_live_share: Annotated[float, Field(ge=0, le=0.9)] = 0.5
    """Objects of tier 2 of which less than this share is live are rewritten; 0: none. A rewrite
    copies the live bytes, so a larger share returns more space and writes more."""
    rewrite_rest_s: Annotated[float, Field(ge=0)] = 600.0
    """How long an object rests after it lost a piece before it is rewritten, because it will soon
    lose more; six times as long at most."""
    load_period_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """The longest time between two reports of the loads of the segments to the controllers."""
    load_busy_s: Annotated[float, Field(ge=0.1, le=3600)] = 2.0
    """The same while anything is appended, so that auto-scaling reacts within seconds; no longer
    than ``load_period_s``."""
    tombstone_s: Annotated[float, Field(ge=24 * 3600)] = 24 * 3600.0
    """How long a deleted or merged segment is remembered, so that no late request recreates it."""
    topic_storage_size_bytes: Annotated[int, Field(ge=0)] = 0
    """The most bytes that the partitions of topics which this store leads may hold together; 0: no
    limit. Beyond it the store refuses records for topics until 5 % of it are free."""
    health_bind: str = "127.0.0.1:0"
    log_level: str = "info"

    @field_validator("join_token_file", mode="before")
    @classmethod
    def _no_token_if_empty(cls, path: object) -> object:
        return path or None

    @field_validator("nats_monitor_urls")
    @classmethod
    def _check_monitor_urls(cls, urls: str) -> str:
        for url in urls.split(","):
            if not is_base_url(url) or not url.startswith("http:"):
                raise ValueError("not URLs such as http://127.0.0.1:8222, separated by commas")
        return urls

    @property
    def tier2(self) -> str:
        """The URL of tier 2."""
        return self.tier2_url or (self.data_dir.expanduser().resolve() / "tier2").as_uri()
