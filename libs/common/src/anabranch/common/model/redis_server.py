"""The settings of a Redis server that decide whether it keeps acknowledged writes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RedisDurability:
    """Each setting in the server's words; "" if the server does not tell it.

    `version`: of Redis, or of the Redis that it is compatible with. `role`: master or slave.
    """

    version: str
    role: str
    appendonly: str
    appendfsync: str
    no_appendfsync_on_rewrite: str
    maxmemory_policy: str
