"""The segment stores of an embedded cluster: which ones start, in which folders. Pure.

A new data directory has the SPU group `main`, whose SPUs ``main-0``, ``main-1`` … live in the
folders `segstore`, `segstore-2` …; SPUs of other groups live in `segstore-<name>`. Stores of
directories that earlier releases made keep the node ids that they drew. They are custom SPUs, and
the group `main` only has the stores that came later.

The file `spus.json` keeps both lists, because the stores start before any controller can be asked.

    {"schema": 1, "custom": ["segstore"], "managed": [{"name": "main-0", "part": "segstore-2", …}]}
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from anabranch.cli.up.directory import numbered
from anabranch.common.provisioning.ports import WantedSpu

SEGSTORE = "segstore"
MAIN = "main"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A segment store. `part`: the name of its part, and of its folder. Without a `name`, it has
    drawn its node id. The rest is that of a `WantedSpu`."""

    part: str
    name: str = ""
    group: str = ""
    rack: str = ""
    storage_size_bytes: int = 0
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class KnownStores:
    """The stores of a data directory. `custom`: the parts of those with drawn node ids, in order;
    `managed`: those of SPU groups."""

    custom: tuple[str, ...] = ()
    managed: tuple[StoreSpec, ...] = ()

    def as_text(self) -> str:
        """The content of the file."""
        managed = [asdict(store) for store in self.managed]
        body = {"schema": SCHEMA, "custom": list(self.custom), "managed": managed}
        return json.dumps(body, indent=2) + "\n"


def known_in(text: str) -> KnownStores:
    """Inverse of `as_text`. Raises ValueError, KeyError, TypeError."""
    body = json.loads(text)
    if body["schema"] > SCHEMA:
        raise ValueError("written by a newer release")
    managed = [
        StoreSpec(**{**one, "env": tuple((name, value) for name, value in one["env"])})
        for one in body["managed"]
    ]
    return KnownStores(tuple(body["custom"]), tuple(managed))


def stores_at_start(known: KnownStores, wanted: int | None) -> tuple[StoreSpec, ...]:
    """The stores that start with the cluster, at least one.

    `wanted`: the number of stores that the user asked for, SPUs of other groups than `main` aside;
    None: as many as there were. With fewer than were known, those of the group start all the same,
    because they are drained before they stop.
    """
    custom = known.custom if wanted is None else known.custom[:wanted]
    stores = [StoreSpec(part) for part in custom]
    stores += known.managed
    managed = {store.name for store in known.managed}
    least = 0 if stores else 1
    for index in range(max((wanted or 0) - len(known.custom), least)):
        if f"{MAIN}-{index}" not in managed:
            stores.append(store_of(WantedSpu(f"{MAIN}-{index}", MAIN, index), known))
    return tuple(stores)


def main_replicas(known: KnownStores, wanted: int | None) -> int | None:
    """The number of SPUs that the group `main` shall have; None: as many as it has."""
    if wanted is not None:
        return max(wanted - len(known.custom), 0)
    return None if known.custom or known.managed else 1


def store_of(spu: WantedSpu, known: KnownStores) -> StoreSpec:
    """The store of a managed SPU."""
    part = f"{SEGSTORE}-{spu.name}"
    if spu.group == MAIN:
        at = len(known.custom) + spu.index
        part = numbered(SEGSTORE, at + 1)[at]
    return StoreSpec(part, spu.name, spu.group, spu.rack, spu.storage_size_bytes, spu.env)


def named_parts(stores: Sequence[StoreSpec]) -> tuple[str, ...]:
    """The names of the stores' parts, in order."""
    return tuple(store.part for store in stores)
