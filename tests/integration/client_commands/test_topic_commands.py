"""Topics from end to end with real processes: by command, by HTTP, and both on the same records."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from anabranch.cli.up import UpSettings, embedded_cluster
from kit.command_line import CommandLine

ROWS = 2_000
NDJSON = {"content-type": "application/x-ndjson"}


class Commands:
    """Command lines on one cluster, directly or through its gateway."""

    def __init__(self, line: CommandLine, *cluster: str) -> None:
        self._line = line
        self._cluster = cluster

    async def lines(self, text: str) -> list[str]:
        """The lines that a command prints that succeeds."""
        return await self._line.lines(*text.split(), *self._cluster)

    async def records(self, text: str) -> list[Any]:
        return [json.loads(one) for one in await self.lines(f"{text} --json")]

    async def refused(self, text: str) -> Any:
        """The error of a command that fails."""
        ended = await self._line.run(*text.split(), "--json", *self._cluster)
        assert ended.code == 1, ended.out
        return ended.error


async def test_topics_work_by_command_and_by_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input").mkdir()
    async with embedded_cluster(UpSettings(tmp_path / "data")) as cluster:
        await cluster.wait_ready()
        gateway = str(cluster.endpoints["gateway"])
        line = CommandLine(capsys)
        direct = Commands(line, "--data-dir", str(tmp_path / "data"))
        over_http = Commands(line, "--http", gateway)
        await lives_by_command(direct, tmp_path / "input")
        await lives_by_command(over_http, tmp_path / "input")
        async with httpx.AsyncClient(base_url=gateway, timeout=60) as http:
            await lives_by_http(http, direct)


async def lives_by_command(commands: Commands, folder: Path) -> None:
    """A topic from its creation to its end: nothing lost, nothing twice, every record numbered."""
    file, more = folder / "rows", folder / "more"
    file.write_text("".join(f"key {n % 7}\t{n}\n" for n in range(ROWS)))
    more.write_text("".join(f"{n}\n" for n in range(ROWS, ROWS + 100)))
    assert await commands.lines("topic create orders -p 3") == ['topic "orders" created']
    assert (await commands.refused("topic create orders"))["code"] == "topic-exists"
    told = await commands.lines(rf"produce orders {file} --key-separator \t --compression zstd")
    assert told == [f'produced {ROWS} records to "orders"']
    found = await commands.records("consume orders -B -d --consumer billing")
    assert sorted(int(one["value"]) for one in found) == list(range(ROWS))
    for number in range(7):
        of_key = [one for one in found if one["key"] == f"key {number}"]
        assert [int(one["value"]) for one in of_key] == list(range(number, ROWS, 7))
        assert len({one["partition"] for one in of_key}) == 1
    for partition in range(3):
        numbers = [one["offset"] for one in found if one["partition"] == partition]
        assert numbers == list(range(len(numbers)))
    (described,) = await commands.records("topic describe orders")
    assert (described["resolution"], described["partitions_online"]) == ("provisioned", 3)
    await added(commands, more)
    await waited_for_too_long(commands)
    assert await commands.lines("topic delete orders") == ['topic "orders" deleted']
    assert (await commands.refused("topic describe orders"))["code"] == "topic-not-found"
    assert await commands.lines("topic list") == ["No topics found"]
    assert await commands.lines("consumer list") == ["No consumers found"]


async def added(commands: Commands, more: Path) -> None:
    """More partitions, whose records a named consumer reads, too."""
    told = await commands.records("topic add-partition orders -c 2")
    assert [one["partition"] for one in told[0]["added"]] == [3, 4]
    await commands.lines(f"produce orders {more} -p 4")
    rest = await commands.records("consume orders -B -d --consumer billing")
    assert [int(one["value"]) for one in rest] == list(range(ROWS, ROWS + 100))
    assert {one["partition"] for one in rest} == {4}
    partitions = await commands.records("partition list --topic orders")
    assert [one["resolution"] for one in partitions] == ["online"] * 5
    offsets = {one["partition"]: one["offset"] for one in await commands.records("consumer list")}
    assert offsets[4] == 99
    last = await commands.records("consume orders -p 4 --start 98 -d")
    assert [(one["offset"], one["value"]) for one in last] == [
        (98, str(ROWS + 98)), (99, str(ROWS + 99)),
    ]  # fmt: skip


async def waited_for_too_long(commands: Commands) -> None:
    """A topic that too few SPUs can hold is created, and says so."""
    error = await commands.refused("topic create wide -r 9 --timeout 2")
    assert (error["code"], error["message"]) == (
        "topic-not-provisioned", "only 0 out of 1 provisioned",
    )  # fmt: skip
    (wide,) = await commands.records("topic list --matching wide")
    assert (wide["resolution"], wide["reason"]) == (
        "insufficient-resources", "need 8 more SPU",
    )  # fmt: skip
    (check,) = await commands.records("doctor topics")
    assert (check["verdict"], "need 8 more SPU" in check["finding"]) == ("warning", True)
    await commands.lines("topic delete wide")


async def lives_by_http(http: httpx.AsyncClient, commands: Commands) -> None:
    """The same through the gateway's own routes."""
    topic = "/v1/topics/web"
    made = await http.post("/v1/topics", json={"topicName": "web", "partitions": 2})
    assert (made.status_code, made.json()["resolution"]) == (201, "provisioned"), made.text
    content = "\n".join(f'{{"n":{n},"k":{n % 7}}}' for n in range(ROWS))
    params = {"key_field": "k"}
    sent = await http.post(f"{topic}/records", content=content, headers=NDJSON, params=params)
    places = sent.json()["records"]
    assert len(places) == ROWS
    found: dict[tuple[int, int], str] = {}
    for partition in range(2):
        following = 0
        while True:
            query = {"partition": partition, "from": following, "max_records": 300}
            page = await http.get(f"{topic}/records", params=query)
            records = [json.loads(one) for one in page.text.splitlines()]
            found |= {(partition, one["offset"]): one["value"] for one in records}
            if not records:
                break
            following = int(page.headers["next-offset"])
    assert len(found) == ROWS
    for number, place in enumerate(places):
        assert json.loads(found[place["partition"], place["offset"]])["n"] == number
    by_command = await commands.records("consume web -B -d")
    assert sorted(one["value"] for one in by_command) == sorted(found.values())
    added = await http.post(f"{topic}/partitions", json={"count": 1})
    assert (added.status_code, added.json()["partitions"]) == (201, 3)
    assert (await http.get(topic)).json()["partitionsOnline"] == 3
    spus = (await http.get("/v1/spus")).json()["spus"]
    assert [one["resolution"] for one in spus] == ["online"]
    assert (await http.delete(topic)).status_code == 204
    assert (await http.get(topic)).status_code == 404
