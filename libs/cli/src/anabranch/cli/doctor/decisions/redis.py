"""Settings of Redis, which holds leases and hints. Pure.

All of its data may be lost; but a server that evicts keys takes leases away at any moment.
"""

from collections.abc import Mapping

from anabranch.cli.doctor.finding import Finding, ok, warning
from anabranch.cli.figures import size

USED_SHARE_MAX = 0.8
POLICY = "noeviction"


def eviction(info: Mapping[str, str]) -> Finding:
    """Whether the server refuses writes instead of evicting leases."""
    policy = info.get("maxmemory_policy", "")
    if policy == POLICY:
        return ok(f"maxmemory-policy is {POLICY}", policy=policy)
    return warning(
        f"maxmemory-policy is {policy or 'unknown'}: a full server takes leases away",
        f"set `maxmemory-policy {POLICY}` in redis.conf",
        policy=policy,
    )


def memory(info: Mapping[str, str]) -> Finding:
    """Whether there is room below the limit of memory."""
    used, limit = _bytes(info, "used_memory"), _bytes(info, "maxmemory")
    if not limit:
        return ok(f"{size(used)} are used; there is no limit", used_bytes=used)
    told = f"{size(used)} of at most {size(limit)} are used"
    if used > USED_SHARE_MAX * limit:
        return warning(told, "raise `maxmemory` in redis.conf", used_bytes=used, limit_bytes=limit)
    return ok(told, used_bytes=used, limit_bytes=limit)


def _bytes(info: Mapping[str, str], name: str) -> int:
    text = info.get(name, "")
    return int(text) if text.isdigit() else 0
