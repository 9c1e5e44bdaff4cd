"""The controller's settings, from the environment: ``ANABRANCH_CONTROLLER_…``."""

from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.addresses import is_base_url
from anabranch.common.runtime.settings import NatsSettings
from anabranch.common.storage.location import ObjectOptions
from anabranch.controller.domain.cluster.joining import SpuRegistration
from anabranch.controller.domain.durability import ReplicaSetting
from anabranch.controller.domain.policies.profile import FAST, PROFILES, HotRule, Profile

CONTAINER_COUNT_MAX = 1024
REPLICATION_MAX = 7


class ScalingOptions(BaseModel):
    """Timings and thresholds of auto-scaling; the profile fills omitted ones.

    Times are in seconds. Factors multiply the target rate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hot: tuple[HotRule, ...] | None = None
    """The windows and factors by which a segment is hot: [[2, 2.0], [5, 1.0]]."""
    cold_s: float | None = Field(default=None, gt=0)
    cold_factor: float | None = None
    merge_factor: float | None = None
    fill_factor: float | None = None
    events_min: int | None = Field(default=None, ge=0)
    parts_max: int | None = Field(default=None, le=100)
    merged_max: int | None = Field(default=None, le=100)
    cooldown_s: float | None = Field(default=None, ge=0)
    mute_s: float | None = Field(default=None, ge=0)
    hot_key_share: float | None = None
    hot_key_halvings: float | None = Field(default=None, ge=1)
    halvings_max: float | None = Field(default=None, ge=1, le=40)

    def changed(self, profile: Profile) -> Profile:
        """The profile with the options that are set. Raises ValueError."""
        given = {
            name: value
            for name in type(self).model_fields
            if (value := getattr(self, name)) is not None
        }
        return replace(profile, **given)


class KubernetesOptions(BaseModel):
    """How the controller runs the SPUs of groups in Kubernetes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str = ""
    """The image of the segment stores; required."""
    namespace: str = "default"
    api_url: str = "https://kubernetes.default.svc"
    """The API server."""
    account_dir: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    """The directory with the files `token` and `ca.crt` of the controller's service account."""
    cluster: str = Field(
        default="anabranch", pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
    )
    """A label that tells clusters in one namespace apart."""
    domain: str = "cluster.local"
    """The DNS domain of the Kubernetes cluster."""
    storage_class: str = ""
    """The class of the stores' volumes; empty: the default one."""
    claim_size_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """The size of a store's volume if its group has no storage size."""
    service_account: str = ""
    """The service account of the stores' pods; empty: the default one."""
    env: dict[str, str] = {}
    """Variables of every store: where NATS and tier 2 are, the kind of journal."""


class Settings(NatsSettings):
    """The settings. A password in a URL is the only secret; `describe` and `repr` mask it."""

    model_config = SettingsConfigDict(env_prefix="ANABRANCH_CONTROLLER_")

    nats_url: str = "nats://127.0.0.1:4222"
    redis_url: str = ""
    """The Redis server of the buckets' leases: redis://host:6379, or with a database's number,
    redis://host:6379/1: each cluster needs its own. Empty: controllers share buckets by rendezvous,
    without leases."""
    objects_url: str = ""
    """The Redis server of the cluster's objects (members, placements, topics, …), another one than
    that of the leases: redis://host:6380. Empty: NATS holds them. It is the same for all
    controllers and segment stores, and never changes."""
    objects_sync: Literal["checked", "unchecked"] = "checked"
    """`unchecked`: start although that Redis may lose acknowledged objects in a power cut."""
    nats_monitor_url: str = "http://127.0.0.1:8222"
    """The monitoring URLs of all NATS servers, separated by commas. They show whether the servers
    sync every write, and how many they are."""
    nats_replicas: ReplicaSetting = "auto"
    """The NATS servers that store each stream and bucket of the metadata. `auto`: 3 if the
    servers are a cluster of at least three, else 1. It is never reduced for a present stream."""
    nats_sync: Literal["checked", "unchecked"] = "checked"
    """`unchecked`: start although the NATS server may lose acknowledged metadata in a power cut."""
    container_count: int = Field(default=4, ge=1, le=CONTAINER_COUNT_MAX)
    """Fixed at the cluster's first start; a controller with another number refuses to start."""
    bucket_count: int | None = Field(default=None, ge=SHARD_COUNT, le=1024, multiple_of=SHARD_COUNT)
    """The number of buckets that controllers share; more than 16 controllers need more than 16.
    Fixed at the cluster's first start, 16 if unset; a controller with another number refuses to
    start."""
    tier2_url: str = ""
    """The segment stores' tier 2, in which the controller records the streams; empty: none."""
    tier2_options: ObjectOptions = ObjectOptions()
    """Options of tier 2 in an object store, the same as those of the segment stores."""
    controller_id: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,64}$")
    """The controller's id in the cluster; empty: drawn at every start. Two processes must not share
    an id. With a fixed id, a controller that restarts takes its place at once."""
    member_dead_s: float = Field(default=3.0, ge=1.5, le=3600)
    """How long a controller or a segment store must be silent before it counts as dead. A store is
    never dead before its own lease has expired, even if this is less. Below 2.75, a short
    outage of NATS may look like the death of a member."""
    join_token_file: Path | None = None
    """A file with a secret that segment stores must have, too; stores without it get no containers.
    Empty: every segment store may join."""
    spu_registration: SpuRegistration = "automatic"
    """`required`: only registered SPUs join the cluster, and other segment stores are refused.
    `automatic`: the leader registers a store that it does not know as a custom SPU, with the next
    free id."""
    provisioner: Literal["none", "kubernetes"] = "none"
    """`kubernetes`: the leader runs a StatefulSet for each SPU group. `none`: another
    provisioner does, such as `anabranch up`."""
    kubernetes: KubernetesOptions = KubernetesOptions()
    """For ``provisioner=kubernetes``: as JSON, or one by one as ``…_KUBERNETES__IMAGE``."""
    placement_settle_s: float = Field(default=3.0, ge=0, le=3600)
    """How long the set of live segment stores must be unchanged before the leader moves containers
    to balance them."""
    replication: int = Field(default=1, ge=1, le=REPLICATION_MAX)
    """How many segment stores replicate the log of a container, if the stores have replicated
    logs. It applies to containers that have no replicas yet."""
    isr_min: int = Field(default=0, ge=0, le=REPLICATION_MAX)
    """The fewest in-sync copies of a replicated log with which events are acknowledged. 0: more
    than half of the replicas."""
    reconcile_s: float = Field(default=60.0, ge=1.0, le=3600.0)
    """How often the leading controller compares every SPU, SPU group, topic and partition with what
    is. Changes are noticed at once; this repairs what was missed."""
    topic_assignment: Literal["round-robin-gap", "least-loaded"] = "round-robin-gap"
    """How the replicas of topics are assigned to SPUs: in turn, with a gap that widens, and over
    racks if the SPUs have racks; or to the SPUs that hold the fewest."""
    topic_rebalance: Literal["command", "join"] = "command"
    """When topics are spread over the SPUs again: by command only, or also after an SPU joined."""
    accept_rewound: bool = False
    """Start although a shard has lost messages that controllers had read. Set it only if these
    messages are lost for good, and unset it afterwards."""
    trim_after_s: float = Field(default=24 * 3600.0, ge=60.0)
    """The age at which an aggregate's newest snapshot lets the messages before the second-newest be
    deleted; also how long a controller may lag without missing a message."""
    outcomes_kept_s: float = Field(default=24 * 3600.0, ge=60.0)
    """How long controllers remember the outcome of a transaction: at least this long, unless very
    many transactions of its stream end meanwhile."""
    retention_period_s: float = Field(default=60.0, ge=1.0, le=24 * 3600.0)
    """How often controllers apply the streams' retention policies. A policy is exact to this
    period and to a 32nd of the policy's minimum."""
    topic_retention_period_s: float = Field(default=10.0, ge=1.0, le=24 * 3600.0)
    """How often controllers look for records that are older than their topic keeps them, or beyond
    its size. Old records stay longer by up to a 64th of the retention, ten minutes at most."""
    watermark_period_s: float = Field(default=10.0, ge=0.1, le=3600.0)
    """How often the times that writers noted become watermarks."""
    scaling: Literal["fast", "classic", "off"] = "fast"
    """How soon streams with a scaling policy follow their load: within seconds (`fast`), with
    Pravega's timings (`classic`), or not at all (`off`)."""
    scaling_options: ScalingOptions = ScalingOptions()
    """Differences from that profile: as JSON, or one by one as ``…_SCALING_OPTIONS__COLD_S``."""
    health_bind: str = "127.0.0.1:0"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def scaling_profile(self) -> Profile | None:
        """The timings of auto-scaling; None: auto-scaling is off."""
        profile = PROFILES.get(self.scaling)
        return None if profile is None else self.scaling_options.changed(profile)

    @model_validator(mode="after")
    def _check_replication(self) -> Self:
        if self.isr_min > self.replication:
            raise ValueError("isr_min is more than replication, so no event would be acknowledged")
        return self

    @model_validator(mode="after")
    def _check_provisioner(self) -> Self:
        if self.provisioner == "kubernetes" and not self.kubernetes.image:
            raise ValueError("the provisioner needs an image: set ..._KUBERNETES__IMAGE")
        return self

    @model_validator(mode="after")
    def _check_scaling(self) -> Self:
        self.scaling_options.changed(PROFILES.get(self.scaling, FAST))
        return self

    @field_validator("join_token_file", mode="before")
    @classmethod
    def _no_file_if_empty(cls, path: object) -> object:
        return path or None

    @model_validator(mode="after")
    def _check_objects_url(self) -> Self:
        if self.objects_url and self.objects_url == self.redis_url:
            raise ValueError("objects_url is the server of the leases, whose data may vanish")
        return self

    @field_validator("nats_monitor_url")
    @classmethod
    def _check_monitor_url(cls, urls: str) -> str:
        for url in urls.split(","):
            if not is_base_url(url) or not url.startswith("http:"):
                raise ValueError("not URLs such as http://127.0.0.1:8222, separated by commas")
        return urls
