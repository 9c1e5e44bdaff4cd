"""Look-ups of many entries of a table over HTTP, against fake partitions."""

from typing import Any

import pytest

from anabranch.gateway.settings import Settings
from kit.gateway_bench import GatewayBench, gateway, problem
from kit.table_paths import (
    TABLE,
    make_table,
    put,
)

LOOK_UP = f"{TABLE}/look-up"
FRUITS = ("apple", "apricot", "banana", "cherry", "date", "elderberry", "fig")


async def fill(g: GatewayBench, **config: Any) -> None:
    """Make the table with all fruits."""
    await make_table(g, **config)
    for number, key in enumerate(FRUITS):
        await put(g, key, value=str(number))


async def test_a_look_up_has_an_entry_or_null_for_each_key() -> None:
    async with gateway() as g:
        await fill(g)
        wanted = ["fig", "none", {"key_base64": "YXBwbGU="}, "fig"]
        found = (await g.http.post(LOOK_UP, json={"keys": wanted})).json()
        nothing = (await g.http.post(LOOK_UP, json={"keys": []})).json()
        encoded = await g.http.post(LOOK_UP, json={"keys": ["fig"]}, params={"encoding": "base64"})

    assert [entry and entry["value"] for entry in found["entries"]] == ["6", None, "0", "6"]
    assert found["remaining"] == 0
    assert nothing == {"entries": [], "remaining": 0}
    assert encoded.json()["entries"][0]["key_base64"] == "Zmln"


async def test_a_look_up_ends_with_the_entry_that_reaches_its_size() -> None:
    async with gateway(Settings(read_size_bytes_max=25_000)) as g:
        await make_table(g)
        names = [f"{n:03}" for n in range(60)]
        for name in names:
            await put(g, name, value="x" * 1000)
        asked, found, answers = names, list[str](), 0
        while asked:
            answer = (await g.http.post(LOOK_UP, json={"keys": asked})).json()
            found += [each["key"] for each in answer["entries"]]
            assert answer["remaining"] == len(asked) - len(answer["entries"])
            asked, answers = asked[len(answer["entries"]) :], answers + 1

    assert found == names
    assert answers == 3


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"keys": [1]}, 400),
        ({"keys": [{}]}, 400),
        ({"keys": [""]}, 400),
        ({"keys": [{"key": "a", "secondary_key": "b"}]}, 400),
        ({"keys": "a"}, 400),
        ({}, 400),
        ({"keys": ["a"] * 10_001}, 413),
    ],
)
async def test_a_look_up_that_makes_no_sense_is_refused(body: Any, status: int) -> None:
    async with gateway() as g:
        await make_table(g)
        problem(await g.http.post(LOOK_UP, json=body), status)
