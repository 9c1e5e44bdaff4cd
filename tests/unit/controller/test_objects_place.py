"""Where the objects of a cluster are: a cluster never begins anew beside its old objects."""

import pytest

from anabranch.common.contracts.cluster import CONSTANTS_KEY
from anabranch.common.errors import InvalidSetting
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.controller.cluster.constants import settle_place


async def test_a_cluster_may_start_in_either_place_again_and_again() -> None:
    here, elsewhere = InMemoryObjectStore(), InMemoryObjectStore()
    for _ in range(2):
        await settle_place(here, elsewhere=False)
        await settle_place(elsewhere, elsewhere=True)
        if await here.get(CONSTANTS_KEY) is None:
            await here.create(CONSTANTS_KEY, b"{}")


async def test_a_cluster_with_objects_in_nats_does_not_start_in_redis() -> None:
    in_nats = InMemoryObjectStore()
    await in_nats.create(CONSTANTS_KEY, b"{}")

    with pytest.raises(InvalidSetting, match="NATS holds the objects"):
        await settle_place(in_nats, elsewhere=True)


async def test_a_cluster_with_objects_in_redis_does_not_start_in_nats() -> None:
    in_nats = InMemoryObjectStore()
    await settle_place(in_nats, elsewhere=True)

    with pytest.raises(InvalidSetting, match="another server"):
        await settle_place(in_nats, elsewhere=False)
