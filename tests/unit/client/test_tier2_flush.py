"""A flush of the whole cluster: every container, by whichever store serves it in time."""

import pytest

from anabranch.client import Unavailable
from anabranch.common.errors import AnabranchError, Deposed, WrongHost
from anabranch.common.wire.messages import Done, FlushContainer, Message
from kit.client_bench import Bench, bench
from kit.fake_segstore import Direction, Fault, FaultRule


def flushed(b: Bench) -> list[int]:
    """The containers that the store was asked to flush, in order of their numbers."""
    asked = [found for found in b.store.requests if isinstance(found, FlushContainer)]
    return sorted(found.container for found in asked)


def refusing(*answers: AnabranchError | Fault) -> FaultRule:
    """Each request to flush container 1 meets the next of these; then they are performed."""
    left = list(answers)

    def fault(direction: Direction, message: Message) -> Fault | AnabranchError | None:
        if direction == "in" and isinstance(message, FlushContainer) and message.container == 1:
            return left.pop(0) if left else None
        return None

    return fault


async def test_every_container_is_flushed_once() -> None:
    async with bench() as b:
        b.controller.container_count = 5
        assert await b.client.cluster.flush_to_tier2(timeout_s=5) == (0, 1, 2, 3, 4)
        assert flushed(b) == [0, 1, 2, 3, 4]


async def test_the_containers_are_listed_as_the_controller_tells() -> None:
    async with bench() as b:
        b.controller.container_count = 2
        found = [one async for one in b.client.containers.list()]
        assert [(one.container, one.state, one.port) for one in found] == [
            (0, "open", b.store.port),
            (1, "open", b.store.port),
        ]


@pytest.mark.parametrize(
    "refusal", [Unavailable("opening"), WrongHost("elsewhere"), Deposed("replaced")]
)
async def test_a_container_that_refuses_or_moves_is_asked_again_alone(
    refusal: AnabranchError,
) -> None:
    async with bench() as b:
        b.controller.container_count = 2
        b.store.fault = refusing(refusal)
        assert await b.client.cluster.flush_to_tier2(timeout_s=5) == (0, 1)
        assert flushed(b) == [0, 1, 1]


async def test_a_lost_connection_is_opened_again() -> None:
    async with bench() as b:
        b.controller.container_count = 2
        b.store.fault = refusing(Fault.DROP)
        assert await b.client.cluster.flush_to_tier2(timeout_s=5) == (0, 1)
        assert b.store.connection_count == 2


async def test_a_container_that_is_not_open_in_time_is_named() -> None:
    async with bench() as b:
        b.controller.container_count = 3
        b.store.fault = refusing(*[Unavailable("opening")] * 1000)
        with pytest.raises(Unavailable) as refused:
            await b.client.cluster.flush_to_tier2(timeout_s=0.15)
        assert (refused.value.fields["container"], refused.value.fields["missing"]) == (1, 1)
        assert refused.value.fields["cause"] == "opening"


async def test_a_container_that_nobody_serves_is_named_with_the_reason() -> None:
    async with bench() as b:
        b.controller.away = True
        with pytest.raises(Unavailable) as refused:
            await b.client.cluster.flush_to_tier2(timeout_s=0.05)
        assert refused.value.fields["container"] == 0
        assert "disk-failed" in str(refused.value.fields["cause"])


async def test_a_store_that_is_slow_to_flush_keeps_its_connection() -> None:
    async with bench() as b:
        await b.client.cluster.flush_to_tier2(timeout_s=5)
        b.store.fault = lambda _direction, message: (
            Fault.HOLD if isinstance(message, Done) else None
        )
        with pytest.raises(Unavailable, match="may not be in tier 2") as refused:
            await b.client.cluster.flush_to_tier2(timeout_s=0.05)
        assert "continues" in str(refused.value.fields["cause"])
        assert b.store.connection_count == len(b.store.connections) == 1


async def test_an_answer_of_another_kind_is_raised_as_it_is() -> None:
    async with bench() as b:
        b.controller.container_count = 2
        b.store.fault = refusing(AnabranchError("a defect"))
        with pytest.raises(AnabranchError, match="a defect"):
            await b.client.cluster.flush_to_tier2(timeout_s=5)


async def test_a_store_that_is_down_is_unavailable_by_name_until_it_is_back() -> None:
    async with bench() as b:
        (segment,) = b.store.segments
        await b.store.stop()
        with pytest.raises(Unavailable) as refusal:
            await b.client._directory.connect(segment)
        fields = refusal.value.fields
        assert (fields["node"], fields["container"]) == ("fake", 0)
        assert "start the store" in refusal.value.remedy
        await b.store.start()
        connection, _ = await b.client._directory.connect(segment)
        assert not connection.closed
