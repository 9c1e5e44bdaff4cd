"""The commands that administer key-value tables, through both sessions, without a cluster."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from anabranch.cli.commands.tables import TableOptions
from anabranch.cli.tables import Tables
from anabranch.client import AnabranchError, TableConfig, TableExists, TableNotFound, TableSealed
from anabranch.common.errors import InvalidRequest
from kit.admin_line import Line, prepared_line
from kit.http_sessions import both_sessions

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    """With the scope plant."""
    return prepared_line(capsys, monkeypatch)


def test_a_table_is_created_listed_configured_sealed_and_deleted(line: Line) -> None:
    assert line("table create plant/latest") == "created table plant/latest with 4 partitions\n"
    assert line("table create plant/one --partitions 1 --ttl 1d").endswith("with 1 partition\n")
    assert line("table list plant") == "plant/latest\nplant/one\n"
    updated = line("table update plant/latest --ttl 36h")
    assert updated == "entries of plant/latest live 1 d 12 h after their last put\n"
    assert line("table update plant/latest --ttl 0").endswith("live until they are removed\n")
    assert line("table seal plant/latest") == "sealed plant/latest\n"
    assert line("table delete plant/latest") == "deleted table plant/latest\n"
    assert line("table list plant") == "plant/one\n"


def test_a_table_is_described_for_people_with_its_partitions_below(line: Line) -> None:
    line("table create plant/t --partitions 2 --primary-key-size 8 --secondary-key-size any")

    shown = line("table describe plant/t").splitlines()

    rows = {row[:16].strip(): row[16:].strip() for row in shown[1:-3]}
    assert shown[0] == "table plant/t"
    assert rows["state"] == "active"
    assert (rows["primary key"], rows["secondary key"]) == ("8 bytes", "any size")
    assert rows["entries live"] == "until they are removed"
    assert [row.split() for row in shown[-3:]] == [
        ["ID", "SEGMENT", "KEYS"],
        ["0", "0.#epoch.0", "0", "–", "0.5"],
        ["1", "1.#epoch.0", "0.5", "–", "1"],
    ]


def test_programs_get_every_field_as_json_and_as_yaml(line: Line) -> None:
    line("table create plant/t --partitions 1 --ttl 1d")

    (told,) = line.records("table describe plant/t")

    assert told["config"] == {
        "partition_count": 1, "primary_key_size": None, "secondary_key_size": 0, "ttl_ms": DAY_MS,
    }  # fmt: skip
    assert (told["scope"], told["table"], told["state"], told["epoch"]) == (
        "plant",
        "t",
        "active",
        0,
    )
    assert [one["segment"] for one in told["partitions"]] == ["plant/_TABLEt/0.#epoch.0"]
    assert yaml.safe_load(line("table describe plant/t --output yaml")) == told
    assert line.records("table list plant") == [{"table": "plant/t"}]
    assert line.records("table update plant/t --ttl 5s") == [{"updated": "plant/t", "ttl_ms": 5000}]
    assert line.records("table seal plant/t") == [{"sealed": "plant/t"}]
    assert line.records("table delete plant/t") == [{"deleted": "plant/t"}]


def test_a_refusal_names_what_to_do_on_the_command_line(line: Line) -> None:
    line("table create plant/t")
    line("table create plant/t", code=1)
    assert "`anabranch table describe plant/t`" in line.notes
    line("table describe plant/none", code=1)
    assert "`anabranch table list plant`" in line.notes
    line("table seal plant/t")
    line("table update plant/t --ttl 1d", code=1)
    assert "sealed" in line.notes


def test_a_change_that_is_not_awaited_names_its_operation(line: Line) -> None:
    line.controller.held = {"seal_table"}
    line("table create plant/t")

    told = line("table seal plant/t --no-wait --json")

    assert json.loads(told)["state"] == "running"


def test_a_recursive_deletion_lists_the_tables_that_would_be_lost(line: Line) -> None:
    line("table create plant/a")
    line("table create plant/b")

    told = line("scope delete plant --recursive", code=1)
    as_record = line("scope delete plant --recursive --json", code=1)
    line("scope delete plant", code=1)
    line("scope delete plant --recursive --yes")

    assert told.startswith("scope plant has plant/sensors, and the tables plant/a, plant/b;")
    assert json.loads(as_record)["tables"] == ["plant/a", "plant/b"]
    assert line("scope list") == ""


async def everything(tables: Tables, name: str) -> list[Any]:
    """What a table's life tells, its name left out."""
    told: list[Any] = []
    await tables.create(name, TableConfig(partition_count=2, primary_key_size=4), wait_s=5.0)
    described = dict(await tables.describe(name))
    told.append({**described, "table": "", "partitions": len(described["partitions"])})
    await tables.update(name, ttl_ms=DAY_MS, wait_s=5.0)
    told.append((await tables.describe(name))["config"])
    await tables.seal(name, wait_s=5.0)
    for failing in (
        tables.create(name, TableConfig(), wait_s=5.0),
        tables.update(name, ttl_ms=1, wait_s=5.0),
    ):
        with pytest.raises(AnabranchError) as raised:
            await failing
        told.append((type(raised.value), raised.value.message))
    await tables.delete(name, wait_s=5.0)
    with pytest.raises(TableNotFound):
        await tables.describe(name)
    return told


async def test_both_sessions_say_and_do_the_same() -> None:
    async with both_sessions() as (_g, client, http):
        over_nats = await everything(client.tables, "plant/a")
        over_http = await everything(http.tables, "plant/b")
        await http.tables.create("plant/c", TableConfig(), wait_s=5.0)
        listed = [[name async for name in s.tables.list_names("plant")] for s in (client, http)]

    assert over_nats == over_http
    assert [error for error, _ in over_nats[-2:]] == [TableExists, TableSealed]
    assert listed == [["c"], ["c"]]


def test_options_make_the_configuration_that_they_name() -> None:
    assert TableOptions().config() == TableConfig()
    given = TableOptions(partitions=9, primary_key_size="16", secondary_key_size="any", ttl="90s")
    assert given.config() == TableConfig(9, 16, None, 90_000)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TableOptions(partitions=0).config(),
        lambda: TableOptions(primary_key_size="0").config(),
        lambda: TableOptions(primary_key_size="-1").config(),
        lambda: TableOptions(primary_key_size="some").config(),
        lambda: TableOptions(secondary_key_size="1" * 10).config(),
        lambda: TableOptions(ttl="soon").config(),
        lambda: TableOptions(ttl="40000d").config(),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest):
        wrong()
