"""The controller's settings, from the environment: ``ANABRANCH_CONTROLLER_…``."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from anabranch.common.runtime.settings import ServiceSettings
from anabranch.common.storage.location import ObjectOptions

CONTAINER_COUNT_MAX = 1024


class Settings(ServiceSettings):
    """What can be set. None of it is secret."""

    model_config = SettingsConfigDict(env_prefix="ANABRANCH_CONTROLLER_")

    nats_url: str = "nats://127.0.0.1:4222"
    redis_url: str = ""
    """Where the leases of buckets are: redis://host:6379. Empty: shared by rendezvous."""
    container_count: int = Field(default=4, ge=1, le=CONTAINER_COUNT_MAX)
    """Written once at the cluster's first start; another number refuses to start."""
    tier2_url: str = ""
    """The tier 2 of the segment stores, to be told what the streams are; empty: it is not."""
    tier2_options: ObjectOptions = ObjectOptions()
    """For tier 2 in an object store, as the segment stores have them."""
    health_bind: str = "127.0.0.1:0"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
