"""Topics, partitions, SPUs and SPU groups over HTTP, without a cluster."""

import pytest

from anabranch.common.contracts import topics as t
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    Encryption,
    Ingress,
    TopicSpec,
)
from kit.gateway_bench import problem
from kit.topic_gateway import objects_gateway

TOPICS = "/v1/topics"
ORDERS = f"{TOPICS}/orders"


async def test_a_topic_lives_with_the_codes_of_streams() -> None:
    async with objects_gateway() as (_, call):
        created = await call.post(TOPICS, json={"topicName": "orders", "partitions": 2})
        assert (created.status_code, created.json()["resolution"]) == (201, "provisioned")
        again = await call.post(TOPICS, json={"topicName": "orders"})
        assert problem(again, 409) == "topic-exists"
        assert (await call.get(ORDERS)).json() == created.json()
        listed = (await call.get(TOPICS)).json()
        assert listed == {"topics": [created.json()], "next_page_token": ""}
        assert (await call.delete(ORDERS)).status_code == 204
        for gone in (call.get(ORDERS), call.delete(ORDERS), call.get(f"{ORDERS}/partitions")):
            assert problem(await gone, 404) == "topic-not-found"
        assert problem(await call.get(f"{TOPICS}/Not_A_Name"), 400) == "invalid-name"


async def test_a_body_becomes_the_spec_of_its_topic() -> None:
    body = {
        "topicName": "orders", "partitions": 3, "replicationFactor": 1, "ignoreRacks": True,
        "retentionS": 3600, "segmentSizeBytes": 4096, "partitionSizeMaxBytes": 8192,
        "compression": "zstd", "deduplication": {"count": 7, "ageS": 9}, "system": True,
    }  # fmt: skip
    async with objects_gateway() as (controller, call):
        created = (await call.post(TOPICS, json=body)).json()
        assert controller.topics["orders"].spec == TopicSpec(
            Computed(3, 1, ignore_racks=True), 3600, 4096, 8192, Compression.ZSTD,
            Deduplication(7, 9), system=True,
        )  # fmt: skip
        assert {name: created[name] for name in body} == body
        await call.post(TOPICS, json={"topicName": "plain"})
        assert controller.topics["plain"].spec == TopicSpec()
        assert problem(await call.delete(ORDERS), 409)
        assert (await call.delete(f"{ORDERS}?force=true")).status_code == 204


async def test_an_assignment_excludes_counts() -> None:
    rows = [{"id": 0, "replicas": [5001, 5002]}]
    async with objects_gateway() as (controller, call):
        body = {"topicName": "orders", "assignment": rows}
        created = await call.post(TOPICS, json=body)
        assert controller.topics["orders"].spec.replicas == Assigned(
            (AssignedPartition(0, (5001, 5002)),)
        )
        assert created.json()["assignment"] == rows
        refused = await call.post(TOPICS, json={**body, "partitions": 1})
        assert problem(refused, 400) == "invalid-request"


@pytest.mark.parametrize(
    "body",
    [
        {"topicName": "orders", "unknown": 1},
        {"topicName": "orders", "compression": "gzip"},
        {"topicName": "orders", "deduplication": {"count": 1, "x": 1}},
        {"topicName": "orders", "partitions": "many"},
        {},
    ],
)
async def test_unknown_and_wrong_fields_are_refused(body: dict[str, object]) -> None:
    async with objects_gateway() as (controller, call):
        assert problem(await call.post(TOPICS, json=body), 400) == "invalid-request"
        assert controller.topics == {}


async def test_the_reasons_of_the_cluster_are_those_of_the_problem() -> None:
    async with objects_gateway() as (_, call):
        refused = await call.post(TOPICS, json={"topicName": "orders", "partitions": 0})
        assert problem(refused, 400) == "invalid-topic"
        assert refused.json()["detail"] == "partition must be greater than 0"


async def test_a_dry_run_creates_nothing() -> None:
    async with objects_gateway() as (controller, call):
        found = await call.post(f"{TOPICS}?dry_run=true", json={"topicName": "orders"})
        assert (found.status_code, found.json()["topicName"]) == (200, "orders")
        assert controller.topics == {}


async def test_a_topic_that_is_not_online_in_time_is_accepted() -> None:
    async with objects_gateway() as (controller, call):
        controller.slow = True
        made = await call.post(f"{TOPICS}?wait=5", json={"topicName": "orders"})
        assert (made.status_code, made.headers["location"]) == (202, ORDERS)
        assert (made.json()["partitions"], made.json()["partitionsOnline"]) == (1, 0)
        added = await call.post(f"{ORDERS}/partitions", json={"count": 1}, params={"wait": 0})
        assert (added.status_code, added.json()["partitions"]) == (202, 2)
        waits = [one.wait_s for one in controller.asked if isinstance(one, t.CreateTopic)]
        assert sum(waits) == 5.0


async def test_the_document_describes_every_answer_about_topics() -> None:
    async with objects_gateway() as (_, call):
        paths = (await call.get("/openapi.json")).json()["paths"]
    assert paths["/v1/topics"]["post"]["responses"].keys() == {"200", "201", "202", "default"}
    assert paths["/v1/topics/{topic}"].keys() == {"get", "patch", "delete"}
    patched = paths["/v1/topics/{topic}"]["patch"]["responses"]
    assert patched.keys() == {"200", "default"}
    records = paths["/v1/topics/{topic}/records"]
    assert records["get"]["responses"].keys() == {"200", "204", "default"}
    assert {p["name"] for p in records["post"]["parameters"]} >= {"partition", "topic"}


async def test_partitions_are_listed_and_added() -> None:
    async with objects_gateway() as (controller, call):
        controller.register(5002, "store-5002")
        await call.post(TOPICS, json={"topicName": "orders"})
        added = await call.post(f"{ORDERS}/partitions", json={"count": 2})
        assert (added.status_code, added.json()["partitions"]) == (201, 3)
        page = (await call.get(f"{ORDERS}/partitions", params={"page_size": 2})).json()
        rest = await call.get(
            f"{ORDERS}/partitions", params={"page_token": page["next_page_token"]}
        )
        found = page["partitions"] + rest.json()["partitions"]
        assert [one["partition"] for one in found] == [0, 1, 2]
        assert found[0]["leaderLive"] == {"spu": 5002, "leo": 7, "hw": 7}
        assert found[0]["replicas"] == [5002]
        assert problem(await call.post(f"{ORDERS}/partitions", json={"count": 0}), 400)


async def test_only_the_named_fields_of_a_topic_change() -> None:
    async with objects_gateway() as (controller, call):
        await call.post(TOPICS, json={"topicName": "orders", "retentionS": 60})
        changed = await call.patch(ORDERS, json={"compression": "none"})
        assert (changed.status_code, changed.json()["compression"]) == (200, "none")
        assert controller.topics["orders"].spec.retention_s == 60
        assert problem(await call.patch(ORDERS, json={"partitions": 3}), 400)


async def test_lists_are_filtered_and_paged() -> None:
    async with objects_gateway() as (_, call):
        for name in ("alpha", "beta", "gamma"):
            await call.post(TOPICS, json={"topicName": name, "system": name == "gamma"})
        seen, token = [], ""
        while True:
            params = {"page_token": token, "page_size": "1", "system": "true"}
            page = (await call.get(TOPICS, params=params)).json()
            seen += [one["topicName"] for one in page["topics"]]
            if not (token := page["next_page_token"]):
                break
        assert seen == ["alpha", "beta", "gamma"]
        found = (await call.get(TOPICS, params={"matching": "a"})).json()["topics"]
        assert [one["topicName"] for one in found] == ["alpha", "beta"]
        foreign = await call.get(TOPICS, params={"page_token": "nonsense"})
        assert problem(foreign, 400) == "invalid-request"


async def test_a_rebalance_returns_its_moves() -> None:
    move = t.PlannedMove(container=1024, partitions=7, before=(1, 2), after=(2, 3))
    async with objects_gateway() as (controller, call):
        controller.moves = (move,)
        found = await call.post("/v1/topics:rebalance?dry_run=true")
        assert found.json() == {"moves": [move.model_dump(mode="json")]}
        assert [one.dry_run for one in controller.asked if isinstance(one, t.Rebalance)] == [True]


# --- SPUs -----------------------------------------------------------------------------------------


async def test_an_spu_is_registered_listed_and_unregistered() -> None:
    body = {
        "spuId": 7002, "rack": "zone-1", "storageSizeBytes": 5,
        "publicEndpoint": {"port": 9005, "ingress": [{"hostname": "h", "ip": ""}],
                           "encryption": "ssl"},
        "privateEndpoint": {"host": "i", "port": 9006, "encryption": "plaintext"},
    }  # fmt: skip
    async with objects_gateway() as (controller, call):
        checked = await call.post("/v1/spus?dry_run=true", json=body)
        assert (checked.status_code, controller.spus) == (201, {})
        made = await call.post("/v1/spus", json=body)
        assert (made.status_code, made.json()["name"]) == (201, "custom-spu-7002")
        spec = controller.spus["custom-spu-7002"].spec
        assert (spec.public.ingress, spec.public.encryption) == ((Ingress("h"),), Encryption.SSL)
        assert {name: made.json()[name] for name in body} == body
        listed = (await call.get("/v1/spus")).json()
        assert listed == {"spus": [made.json()], "next_page_token": ""}
        taken = await call.post("/v1/spus", json={"spuId": 1, "name": "custom-spu-7002"})
        assert problem(taken, 409) == "spu-exists"
        assert (await call.delete("/v1/spus/7002")).status_code == 204
        assert problem(await call.delete("/v1/spus/custom-spu-7002"), 404) == "spu-not-found"
        assert problem(await call.post("/v1/spus", json={"spuId": 1, "x": 1}), 400)


async def test_an_spu_group_is_created_scaled_and_deleted() -> None:
    groups, group = "/v1/spu-groups", "/v1/spu-groups/main"
    async with objects_gateway() as (_, call):
        body = {"groupName": "main", "replicas": 2, "minId": 11, "rack": "a"}
        made = await call.post(groups, json=body)
        assert (made.status_code, made.json()["resolution"]) == (201, "reserved")
        assert {name: made.json()[name] for name in body} == body
        scaled = await call.put(group, json={"replicas": 3})
        assert (scaled.status_code, scaled.json()["replicas"]) == (200, 3)
        assert (await call.get(groups)).json() == {"spuGroups": [scaled.json()]}
        gone = await call.delete(group)
        assert (gone.status_code, gone.json()["deleting"]) == (202, True)
        assert problem(await call.delete(group), 404) == "spu-group-not-found"
