"""The `anabranch` program and transactions, over both ways to a real cluster.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import json
from pathlib import Path
from typing import Any

from anabranch.cli.up import UpSettings, embedded_cluster
from integration.client_commands.test_group_commands import DEADLINE_S, anabranch, started

STREAM = "shop/orders"


async def told(*arguments: str, given: bytes = b"") -> dict[str, Any]:
    (line,) = await anabranch("transaction", *arguments, "--json", given=given)
    found: dict[str, Any] = json.loads(line)
    return found


async def refused(*arguments: str) -> str:
    """The code of the error that it ends with."""
    process = await started("transaction", *arguments, "--json")
    _, error = await process.communicate()
    assert process.returncode == 1, error
    return str(json.loads(error)["error"]["code"])


async def test_a_transaction_passes_from_command_to_command_over_both_ways(tmp_path: Path) -> None:
    async with embedded_cluster(UpSettings(tmp_path)) as cluster:
        await cluster.wait_ready()
        http = ("--http", str(cluster.endpoints["gateway"]))
        nats = ("--nats", str(cluster.endpoints["nats"]))
        await anabranch("scope", "create", "shop", *nats)
        await anabranch("stream", "create", STREAM, "--segments", "2", *nats)
        lease = ("--lease", f"{DEADLINE_S}s")
        for begin, end in ((nats, http), (http, nats)):
            mine = (STREAM, (await told("begin", STREAM, *lease, *begin))["transaction_id"])
            assert (await told("write", *mine, *end, given=b"1\n2"))["events"] == 2
            assert (await told("write", *mine, *begin, given=b"3"))["events"] == 1
            assert (await told("list", STREAM, *end))["transaction_id"] == mine[1]
            assert (await told("commit", *mine, *end))["state"] == "committed"
            assert (await told("show", *mine, *begin))["state"] == "committed"

        lost = (STREAM, (await told("begin", STREAM, *nats))["transaction_id"])
        await told("write", *lost, *nats, given=b"lost")
        for way in (nats, http):
            assert (await told("ping", *lost, *way))["lease_left_ms"] > 0
        assert (await told("abort", *lost, *http))["state"] in ("aborting", "aborted")
        for way in (nats, http):
            assert await refused("commit", *lost, *way) == "transaction-ended"
        read = await anabranch("read", STREAM, *nats)

    assert sorted(read) == ["1", "1", "2", "2", "3", "3"]


async def test_a_version_in_parts_is_committed_by_the_reports_of_its_parts(tmp_path: Path) -> None:
    async with embedded_cluster(UpSettings(tmp_path / "cluster")) as cluster:
        await cluster.wait_ready()
        http = ("--http", str(cluster.endpoints["gateway"]))
        nats = ("--nats", str(cluster.endpoints["nats"]))
        await anabranch("scope", "create", "shop", *nats)
        await anabranch("stream", "create", STREAM, *nats)
        version = ("--parts", "--application", "etl", "--version", "1", "--lease", "1m")
        mine = (STREAM, (await told("begin", STREAM, *version, *http))["transaction_id"])
        reports = [
            await told("write", *mine, "--part", "new", *way, given=given)
            for way, given in ((http, b"1"), (nats, b"2"), (nats, b"half"))
        ]
        file = tmp_path / "parts.jsonl"
        file.write_text("\n".join(json.dumps(report) for report in reports[:2]))
        assert (await told("commit", *mine, "--parts", str(file), *http))["state"] == "committed"
        application = ("application", "show", STREAM, "etl")
        assert (await told(*application, *nats))["committed_version"] == 1
        earlier = ("begin", STREAM, "--application", "etl", "--version", "0")
        assert await refused(*earlier, *nats) == "version-passed"
        await told("application", "forget", STREAM, "etl", *http)
        read = await anabranch("read", STREAM, *http)

    assert read == ["1", "2"]
