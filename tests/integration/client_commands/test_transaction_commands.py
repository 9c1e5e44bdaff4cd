"""The `anabranch` program and transactions, over both ways to a real cluster.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from anabranch.cli.up import EmbeddedCluster, UpSettings
from kit.command_line import CommandLine
from kit.module_cluster import running_cluster


class Transactions(CommandLine):
    """Performs `anabranch transaction`."""

    async def told(self, *arguments: str, given: bytes = b"") -> dict[str, Any]:
        """The one line that it prints."""
        (line,) = await self.lines("transaction", *arguments, "--json", given=given)
        found: dict[str, Any] = json.loads(line)
        return found

    async def refused(self, *arguments: str) -> str:
        """The code of the error that it ends with."""
        ended = await self.run("transaction", *arguments, "--json")
        assert ended.code == 1, ended
        return str(ended.error["code"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(UpSettings(tmp_path_factory.mktemp("transactions") / "data")) as running:
        yield running


@pytest.fixture
def sh(capsys: pytest.CaptureFixture[str]) -> Iterator[Transactions]:
    with capture_logs():  # the program sends them to stderr
        yield Transactions(capsys)


async def test_a_transaction_passes_from_command_to_command_over_both_ways(
    cluster: EmbeddedCluster, sh: Transactions
) -> None:
    stream = "shop/orders"
    http = ("--http", str(cluster.endpoints["gateway"]))
    nats = ("--nats", str(cluster.endpoints_file))
    await sh.lines("scope", "create", "shop", *nats)
    await sh.lines("stream", "create", stream, "--segments", "2", *nats)
    lease = ("--lease", "1m")
    for begin, end in ((nats, http), (http, nats)):
        mine = (stream, (await sh.told("begin", stream, *lease, *begin))["transaction_id"])
        assert (await sh.told("write", *mine, *end, given=b"1\n2"))["events"] == 2
        assert (await sh.told("write", *mine, *begin, given=b"3"))["events"] == 1
        assert (await sh.told("list", stream, *end))["transaction_id"] == mine[1]
        assert (await sh.told("commit", *mine, *end))["state"] == "committed"
        assert (await sh.told("show", *mine, *begin))["state"] == "committed"

    lost = (stream, (await sh.told("begin", stream, *nats))["transaction_id"])
    await sh.told("write", *lost, *nats, given=b"lost")
    for way in (nats, http):
        assert (await sh.told("ping", *lost, *way))["lease_left_ms"] > 0
    assert (await sh.told("abort", *lost, *http))["state"] in ("aborting", "aborted")
    for way in (nats, http):
        assert await sh.refused("commit", *lost, *way) == "transaction-ended"
    read = await sh.lines("read", stream, *nats)

    assert sorted(read) == ["1", "1", "2", "2", "3", "3"]


async def test_a_version_in_parts_is_committed_by_the_reports_of_its_parts(
    cluster: EmbeddedCluster, tmp_path: Path, sh: Transactions
) -> None:
    stream = "parts/orders"
    http = ("--http", str(cluster.endpoints["gateway"]))
    nats = ("--nats", str(cluster.endpoints_file))
    await sh.lines("scope", "create", "parts", *nats)
    await sh.lines("stream", "create", stream, *nats)
    version = ("--parts", "--application", "etl", "--version", "1", "--lease", "1m")
    mine = (stream, (await sh.told("begin", stream, *version, *http))["transaction_id"])
    reports = [
        await sh.told("write", *mine, "--part", "new", *way, given=given)
        for way, given in ((http, b"1"), (nats, b"2"), (nats, b"half"))
    ]
    file = tmp_path / "parts.jsonl"
    file.write_text("\n".join(json.dumps(report) for report in reports[:2]))
    assert (await sh.told("commit", *mine, "--parts", str(file), *http))["state"] == "committed"
    application = ("application", "show", stream, "etl")
    assert (await sh.told(*application, *nats))["committed_version"] == 1
    earlier = ("begin", stream, "--application", "etl", "--version", "0")
    assert await sh.refused(*earlier, *nats) == "version-passed"
    await sh.told("application", "forget", stream, "etl", *http)
    read = await sh.lines("read", stream, *http)

    assert read == ["1", "2"]
