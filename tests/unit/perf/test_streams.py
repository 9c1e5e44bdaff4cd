"""The stream of a measurement: created and deleted, or named and left alone."""

import io

import pytest

from anabranch.cli.output import Form, Output
from anabranch.cli.perf.streams import SCOPE, Wanted, measured_stream
from anabranch.client import StreamNotFound
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.ids import SeededIds
from kit.client_bench import STREAM, Bench, bench

OWN = Wanted(None, "write", 3)


def output() -> Output:
    return Output(Form.TABLE, io.StringIO())


def streams(b: Bench) -> list[str]:
    return [f"{scope}/{name}" for scope, found in b.controller.scopes.items() for name in found]


async def test_an_own_stream_exists_within_the_block_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with bench() as b:
        async with measured_stream(b.client, OWN, output(), SeededIds(1)) as name:
            assert (await b.client.streams.describe(name)).segment_count == 3
            assert streams(b) == [STREAM, name]

        assert streams(b) == [STREAM]
        assert SCOPE not in b.controller.scopes
    said = capsys.readouterr().err
    assert said == f"created stream {name} with 3 segments; it is deleted at the end\n"


async def test_a_scope_that_was_there_before_stays() -> None:
    async with bench() as b:
        b.controller.scopes[SCOPE] = {}
        async with measured_stream(b.client, OWN, output()):
            pass

        assert b.controller.scopes[SCOPE] == {}


async def test_a_scope_that_another_measurement_uses_stays() -> None:
    async with bench() as b:
        async with measured_stream(b.client, OWN, output()):
            await b.client.streams.create(f"{SCOPE}/other")

        assert streams(b) == [STREAM, f"{SCOPE}/other"]


async def test_an_own_stream_is_deleted_when_the_measurement_fails() -> None:
    async with bench() as b:
        with pytest.raises(ValueError, match="load"):
            async with measured_stream(b.client, OWN, output()):
                raise ValueError("load")

        assert streams(b) == [STREAM]


async def test_a_stream_that_cannot_be_deleted_is_named_and_hides_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(b: Bench) -> None:
        async with measured_stream(b.client, OWN, output()):
            b.controller.scopes[SCOPE].clear()
            raise ValueError("load")

    async with bench() as b:
        with pytest.raises(ValueError, match="load"):
            await fail(b)

    assert f"stream {SCOPE}/write-" in capsys.readouterr().err.splitlines()[-1]


async def test_a_kept_stream_stays_open() -> None:
    async with bench() as b:
        async with measured_stream(b.client, Wanted(None, "write", 1, keep=True), output()) as name:
            pass

        assert (await b.client.streams.describe(name)).state is StreamState.ACTIVE


async def test_a_named_stream_must_exist_and_is_not_touched() -> None:
    async with bench() as b:
        async with measured_stream(b.client, Wanted(STREAM, "write", 9), output()) as name:
            assert name == STREAM
        assert (await b.client.streams.describe(STREAM)).state is StreamState.ACTIVE

        with pytest.raises(StreamNotFound):
            async with measured_stream(b.client, Wanted("plant/none", "write", 1), output()):
                raise AssertionError("there is no such stream")
        assert streams(b) == [STREAM]
