"""The cluster, the controllers' work and parked commands over HTTP, without a cluster."""

from anabranch.common.contracts.parked import ParkedDescription
from kit.fake_admin import AdminController
from kit.fake_course import BEGAN_MS
from kit.gateway_bench import gateway, problem

SENSORS = "/v1/scopes/plant/streams/sensors"


async def test_the_cluster_and_its_members_are_told() -> None:
    async with gateway() as g:
        get = g.http.get
        whole = (await get("/v1/cluster")).json()
        (controller,) = (await get("/v1/cluster/controllers")).json()["controllers"]
        stores = (await get("/v1/cluster/stores")).json()["stores"]
        (container,) = (await get("/v1/cluster/containers")).json()["containers"]

    assert (whole["leader"], whole["term"], whole["containers"]) == ("c1", 3, {"open": 1})
    assert whole["stores"] == {"known": 2, "live": 1}
    assert "hold" not in whole
    assert (controller["controllerId"], controller["sinceMs"]) == ("c1", BEGAN_MS)
    assert [store["nodeId"] for store in stores] == ["fake", "other"]
    assert (container["state"], container["nodeId"]) == ("open", "fake")


async def test_what_is_stuck_is_told_with_its_reason() -> None:
    async with gateway() as g:
        controller = g.bench.controller
        assert isinstance(controller, AdminController)
        controller.held = {"seal_stream"}
        body = {"streamState": "SEALED"}
        accepted = await g.http.put(f"{SENSORS}/state", json=body, params={"wait": 0})
        (work,) = (await g.http.get("/v1/work")).json()["work"]
        elsewhere = (await g.http.get("/v1/work", params={"scope": "other"})).json()["work"]

    assert work["operations"] == [accepted.json()["operation"]]
    assert (work["stream"], work["step"], work["attempts"]) == ("sensors", "seal_segments", 2)
    assert work["lastError"]["message"] == "a store is away"
    assert elsewhere == []


async def test_parked_commands_are_listed_redriven_and_dropped() -> None:
    async with gateway() as g:
        controller = g.bench.controller
        assert isinstance(controller, AdminController)
        controller.parked = [
            ParkedDescription(
                command_id=name, bucket=1, subject="s", attempts=10, first_ms=1, last_ms=2,
                error="why", body="{}",
            )
            for name in ("a", "b")
        ]  # fmt: skip
        listed = (await g.http.get("/v1/parked")).json()["parked"]
        redriven = await g.http.post("/v1/parked/a/redrive")
        again = await g.http.post("/v1/parked/a/redrive")
        dropped = await g.http.delete("/v1/parked/b")
        gone = await g.http.delete("/v1/parked/b")
        wrong = await g.http.delete("/v1/parked/no%20id")

    assert [one["commandId"] for one in listed] == ["a", "b"]
    assert listed[0]["error"] == "why"
    assert (redriven.status_code, dropped.status_code) == (204, 204)
    assert problem(again, 404) == problem(gone, 404) == "operation-not-found"
    assert problem(wrong, 400) == "invalid-request"
    assert controller.parked == []
