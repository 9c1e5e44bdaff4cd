"""The tutorial's way to turn one stream into another exactly once, killed at each of its awaits."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from anabranch.client import Client
from anabranch.common.contracts.commands import CreateStream
from anabranch.common.errors import AnabranchError, Closed
from anabranch.common.model.names import StreamName
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import READER, STREAM, Bench, bench, writer_settings
from kit.documents import runnable_blocks

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"
TARGET, PLAN = "plant/shouted", "plant/plan"
WRITTEN = [b"event %d" % number for number in range(12)]
SHOUTED = [event.upper() for event in WRITTEN]
CarryBatch = Callable[..., Awaitable[bool]]


def recipe(batch_bytes: int) -> CarryBatch:
    """`carry_batch` as it stands in the tutorial."""
    blocks = runnable_blocks("docs/tutorial.md", TUTORIAL.read_text())
    (block,) = [block for block in blocks if "async def carry_batch" in block.code]
    namespace: dict[str, object] = {}
    exec("import json\n" + block.code, namespace)
    namespace["BATCH_BYTES"] = batch_bytes
    return cast(CarryBatch, namespace["carry_batch"])


CARRY_BATCH = recipe(batch_bytes=150)


def prepare(b: Bench) -> None:
    """The streams beside the input; their segments are on the same store."""
    for name in ("shouted", "plan"):
        b.controller.decide(CreateStream(command_id=name, scope="plant", stream=StreamName(name)))


async def write_input(b: Bench) -> None:
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=60)) as writer:
        for start in range(0, len(WRITTEN), 4):
            writer.write_batch(WRITTEN[start : start + 4], keys=["k"] * 4)
            await writer.flush()


async def program(client: Client) -> None:
    """All of the input, batch by batch."""
    while await CARRY_BATCH(client, "shouter", STREAM, TARGET, PLAN, bytes.upper):
        pass


async def output(b: Bench) -> list[bytes]:
    async with b.client.reader(TARGET, until_tail=True, settings=READER) as reader:
        return [event.payload async for event in reader]


def die_without_a_word(b: Bench) -> None:
    """Whoever is cancelled from now on aborts nothing: as if the process were killed."""

    def killed(name: str) -> None:
        if name == "abort_transaction":
            raise Closed("the process is dead")

    b.control.before_query = killed


@pytest.mark.parametrize("is_killed", [False, True])
async def test_whatever_await_it_dies_at_the_output_is_there_once(is_killed: bool) -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench(segment_count=1) as b:
            prepare(b)
            await write_input(b)
            if is_killed:
                die_without_a_word(b)
            await cancelling.run(program(b.client))
            b.control.before_query = lambda _: None
            await program(b.client)
            assert await output(b) == SHOUTED
            known = await b.client.transactions(TARGET).application("shouter")
            assert (known.committed_version or 0) >= 1, "there was only one batch"

    assert await everywhere(scenario) >= 20


async def test_two_at_once_carry_nothing_twice() -> None:
    """They abort each other's attempts; who is told so begins again."""

    async def stubborn(b: Bench) -> None:
        while True:
            try:
                return await program(b.client)
            except AnabranchError:  # what a supervisor does
                continue

    async with bench() as b:
        prepare(b)
        await write_input(b)
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(stubborn(b))
        assert await output(b) == SHOUTED
