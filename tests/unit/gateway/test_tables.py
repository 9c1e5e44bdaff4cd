"""Key-value tables over HTTP: their administration, without a cluster."""

from typing import Any

import pytest

from kit.gateway_bench import gateway, problem

TABLES = "/v1/scopes/plant/tables"
TABLE = f"{TABLES}/latest"
LATEST = {"tableName": "latest", "partitionCount": 2, "primaryKeySize": 8}


async def test_a_table_lives_with_the_codes_of_streams() -> None:
    async with gateway() as g:
        call = g.http
        created = await call.post(TABLES, json=LATEST)
        assert (created.status_code, created.json()["tableState"]) == (201, "ACTIVE")
        assert problem(await call.post(TABLES, json=LATEST), 409) == "table-exists"
        assert problem(await call.post("/v1/scopes/none/tables", json=LATEST), 404)
        assert (await call.get(TABLE)).json() == created.json()
        listed = (await call.get(TABLES)).json()
        assert listed == {"tables": [{"tableName": "latest"}], "next_page_token": ""}
        state = f"{TABLE}/state"
        assert problem(await call.put(state, json={"tableState": "ACTIVE"}), 400)
        for _ in range(2):
            sealed = await call.put(state, json={"tableState": "SEALED"})
            assert (sealed.status_code, sealed.json()) == (200, {"tableState": "SEALED"})
        assert (await call.get(TABLE)).json()["tableState"] == "SEALED"
        assert problem(await call.put(TABLE, json={"ttlMs": 5}), 409) == "table-sealed"
        assert (await call.delete(TABLE)).status_code == 204
        for gone in (call.get(TABLE), call.delete(TABLE), call.put(TABLE, json={"ttlMs": 5})):
            assert problem(await gone, 404) == "table-not-found"
        assert problem(await call.get("/v1/scopes/none/tables"), 404) == "scope-not-found"


async def test_a_table_is_shown_with_its_configuration_and_partitions() -> None:
    async with gateway() as g:
        await g.http.post(TABLES, json={**LATEST, "secondaryKeySize": None, "ttlMs": 60_000})
        found = (await g.http.get(TABLE)).json()

    assert found.pop("createdMs") == found.pop("epochMs") > 0
    assert found == {
        "scopeName": "plant",
        "tableName": "latest",
        "incarnation": 1,
        "tableState": "ACTIVE",
        "config": {
            "partitionCount": 2, "primaryKeySize": 8, "secondaryKeySize": None, "ttlMs": 60_000,
        },
        "epoch": 0,
        "partitions": [
            {
                "segmentId": number,
                "segment": f"plant/_TABLElatest/{number}.#epoch.0",
                "keyStart": number / 2,
                "keyEnd": (number + 1) / 2,
            }
            for number in range(2)
        ],
    }  # fmt: skip


async def test_the_configuration_that_is_shown_makes_another_table_alike() -> None:
    async with gateway() as g:
        first = (await g.http.post(TABLES, json=LATEST)).json()
        second = await g.http.post(TABLES, json={"tableName": "other", **first["config"]})

    assert second.json()["config"] == first["config"]


async def test_the_time_to_live_alone_can_be_changed() -> None:
    async with gateway() as g:
        await g.http.post(TABLES, json=LATEST)
        changed = await g.http.put(TABLE, json={"ttlMs": 5000})

        assert changed.status_code == 200
        assert changed.json()["config"]["ttlMs"] == 5000
        assert (await g.http.get(TABLE)).json() == changed.json()
        for wrong in ({}, {"ttlMs": -1}, {"ttlMs": 5, "partitionCount": 2}):
            assert problem(await g.http.put(TABLE, json=wrong), 400) == "invalid-request"


async def test_tables_are_listed_a_page_at_a_time() -> None:
    async with gateway() as g:
        for name in ("a", "b", "c"):
            await g.http.post(TABLES, json={**LATEST, "tableName": name})
        first = (await g.http.get(TABLES, params={"page_size": 2})).json()
        token = {"page_token": first["next_page_token"]}
        rest = (await g.http.get(TABLES, params=token)).json()
        foreign = await g.http.get("/v1/scopes", params=token)

    names = [one["tableName"] for page in (first, rest) for one in page["tables"]]
    assert names == ["a", "b", "c"]
    assert problem(foreign, 400) == "invalid-request"


async def test_the_same_idempotency_key_makes_a_table_once() -> None:
    key = {"Idempotency-Key": "k"}
    async with gateway() as g:
        made = [await g.http.post(TABLES, json=LATEST, headers=key) for _ in range(2)]
        other = await g.http.post(TABLES, json={**LATEST, "ttlMs": 2000}, headers=key)

    assert [answer.status_code for answer in made] == [201, 201]
    assert problem(other, 422) == "idempotency-mismatch"


async def test_a_scope_with_a_table_is_not_empty() -> None:
    async with gateway() as g:
        await g.http.post("/v1/scopes", json={"scopeName": "s"})
        await g.http.post("/v1/scopes/s/tables", json=LATEST)

        assert problem(await g.http.delete("/v1/scopes/s"), 412) == "scope-not-empty"
        await g.http.delete("/v1/scopes/s/tables/latest")
        assert (await g.http.delete("/v1/scopes/s")).status_code == 204


@pytest.mark.parametrize(
    "wrong",
    [
        {"tableName": "_"},
        {"tableName": "a/b"},
        {"tableName": "t" * 250},
        {"partitionCount": 0},
        {"partitionCount": 1025},
        {"primaryKeySize": 0},
        {"secondaryKeySize": -1},
        {"primaryKeySize": 8192, "secondaryKeySize": 1},
        {"ttlMs": -1},
        {"ttlMs": "soon"},
        {"unknown": 1},
    ],
)
async def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    async with gateway() as g:
        problem(await g.http.post(TABLES, json={**LATEST, **wrong}), 400)


async def test_a_table_can_be_made_and_described_by_the_names_of_requests() -> None:
    async with gateway() as g:
        command = {"command_id": "c", "scope": "plant", "table": "t", "config": {}}
        made = await g.http.post("/v1/control/command/create_table?wait=5", json=command)
        found = await g.http.post(
            "/v1/control/query/describe_table", json={"scope": "plant", "table": "t"}
        )
        internal = await g.http.post(
            "/v1/control/command/create_table", json={**command, "table": "_t"}
        )

    assert made.json() == {"operation": "c", "state": "succeeded"}
    assert (found.json()["table"], len(found.json()["partitions"])) == ("t", 4)
    assert problem(internal, 400) == "invalid-name"


async def test_the_description_of_the_interface_names_the_routes_of_tables() -> None:
    async with gateway() as g:
        document = (await g.http.get("/openapi.json")).json()

    paths = {path: set(item) for path, item in document["paths"].items() if "/tables" in path}
    tables = "/v1/scopes/{scope}/tables"
    assert (
        paths.items()
        >= {
            tables: {"get", "post"},
            f"{tables}/{{table}}": {"get", "put", "delete"},
            f"{tables}/{{table}}/state": {"put"},
        }.items()
    )
    assert "tables" in [tag["name"] for tag in document["tags"]]
