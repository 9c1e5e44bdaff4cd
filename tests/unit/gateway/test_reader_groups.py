"""Reader groups over HTTP: administration, checkpoints, cuts and readers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.client import GroupReaderSettings
from kit.client_bench import STREAM
from kit.gateway_bench import EVENTS, GatewayBench, gateway, problem

GROUPS = "/v1/scopes/plant/readergroups"
GROUP = f"{GROUPS}/w"
WORKERS = {"readerGroupName": "w", "streams": [STREAM]}
NO_LAG = {"events": 0, "bytes": 0, "seconds": 0.0, "exact": True}
FAST = GroupReaderSettings(save_interval_s=0.02)


@asynccontextmanager
async def group(segment_count: int = 1, **config: Any) -> AsyncIterator[GatewayBench]:
    """A gateway, and a group of its stream."""
    async with gateway(segment_count=segment_count) as g:
        created = await g.http.post(GROUPS, json={**WORKERS, **config})
        assert created.status_code == 201, created.text
        yield g


async def test_a_group_lives_with_pravegas_paths_fields_and_codes() -> None:
    async with gateway(segment_count=2) as g:
        call = g.http
        created = await call.post(GROUPS, json=WORKERS)
        assert (created.status_code, created.json()["generation"]) == (201, 0)
        assert problem(await call.post(GROUPS, json=WORKERS), 409) == "reader-group-exists"
        listed = (await call.get(GROUPS)).json()
        assert listed == {"readerGroups": [{"readerGroupName": "w"}], "next_page_token": ""}
        found = (await call.get(GROUP)).json()
        pravegas = {"scopeName": "plant", "readerGroupName": "w", "streamList": [STREAM]}
        assert found.items() >= {**pravegas, "onlineReaderIds": [], "state": "ACTIVE"}.items()
        assert (found["readers"], found["lag"], found["complete"]) == ([], NO_LAG, False)
        assert len(found["segments"]) == 2
        assert (await call.delete(GROUP)).status_code == 204
        assert problem(await call.get(GROUP), 404) == "reader-group-not-found"
        assert problem(await call.delete(GROUP), 404) == "reader-group-not-found"
        assert problem(await call.get("/v1/scopes/none/readergroups"), 404) == "scope-not-found"


async def test_groups_are_listed_a_page_at_a_time() -> None:
    async with gateway() as g:
        for name in ("a", "b", "c"):
            await g.http.post(GROUPS, json={**WORKERS, "readerGroupName": name})
        first = (await g.http.get(GROUPS, params={"page_size": 2})).json()
        token = {"page_token": first["next_page_token"]}
        rest = (await g.http.get(GROUPS, params=token)).json()
        foreign = await g.http.get("/v1/scopes", params=token)

    names = [one["readerGroupName"] for page in (first, rest) for one in page["readerGroups"]]
    assert names == ["a", "b", "c"]
    assert problem(foreign, 400) == "invalid-request"


async def test_what_a_group_is_configured_to_is_kept_and_can_be_sent_again() -> None:
    config = {
        "streams": [{"stream": STREAM, "start": {"0": 0, "1": {"offset": 0}}, "end": "tail"}],
        "leaseMs": 5000,
        "automaticCheckpointMs": 60_000,
        "checkpointsMax": 7,
        "retentionType": "MANUAL",
        "releaseAfterCheckpoint": True,
    }
    async with group(segment_count=2, **config) as g:
        told = (await g.http.get(GROUP, params={"details": "false"})).json()
        same = await g.http.post(GROUPS, json={"readerGroupName": "x", **told["config"]})
        subscribers = (await g.http.get(EVENTS.replace("events", "subscribers"))).json()

    place = {"offset": 0, "eventIndex": 0}
    cut = {"0": place, "1": place}
    assert told["config"] == {**config, "streams": [{"stream": STREAM, "start": cut, "end": cut}]}
    assert "lag" not in told
    assert same.json()["config"] == told["config"]
    assert subscribers["subscribers"][0] == {"subscriber": "plant/w", "generation": 0, "cut": {}}


async def test_the_same_idempotency_key_makes_a_group_once() -> None:
    key = {"Idempotency-Key": "k"}
    async with gateway() as g:
        made = [await g.http.post(GROUPS, json=WORKERS, headers=key) for _ in range(2)]
        other = await g.http.post(GROUPS, json={**WORKERS, "leaseMs": 2000}, headers=key)

    assert [answer.status_code for answer in made] == [201, 201]
    assert problem(other, 422) == "idempotency-mismatch"


@pytest.mark.parametrize(
    "wrong",
    [
        {"readerGroupName": "_"},
        {"streams": []},
        {"streams": ["no-scope"]},
        {"streams": [STREAM, STREAM]},
        {"streams": [{"stream": STREAM, "start": {}}]},
        {"streams": [{"stream": STREAM, "start": "middle"}]},
        {"leaseMs": 1},
        {"checkpointsMax": 0},
        {"retentionType": "some"},
        {"automaticCheckpointMs": 5},
        {"unknown": 1},
    ],
)
async def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    async with gateway() as g:
        problem(await g.http.post(GROUPS, json={**WORKERS, **wrong}), 400)


async def test_a_group_that_starts_at_the_tail_has_nothing_to_read_yet() -> None:
    async with gateway() as g:
        await g.http.post(EVENTS, json=1)
        await g.http.post(GROUPS, json={**WORKERS, "start": "tail"})
        before = (await g.http.get(GROUP)).json()
        await g.http.post(EVENTS, json=2)
        after = (await g.http.get(GROUP)).json()

    assert (before["lag"]["events"], after["lag"]["events"]) == (0, 1)


async def test_readers_are_told_with_their_segments_and_their_lag() -> None:
    async with group(segment_count=2) as g:
        for key in range(4):
            await g.http.post(EVENTS, json=key, headers={"Routing-Key": str(key)})
        workers = g.bench.client.reader_group("plant/w")
        async with workers.reader("one", FAST) as reader:
            await anext(reader)
            found = (await g.http.get(GROUP)).json()

    assert found["onlineReaderIds"] == ["one"]
    (one,) = found["readers"]
    assert (one["readerId"], len(one["segments"])) == ("one", 2)
    assert (one["lag"]["events"], one["lag"]["exact"]) == (4, True)
    assert {each["readerId"] for each in found["segments"]} == {"one"}
    assert sum(each["lag"]["bytes"] for each in found["segments"]) == found["lag"]["bytes"] > 0


async def test_a_reset_begins_the_next_generation_where_it_says() -> None:
    async with group() as g:
        await g.http.post(EVENTS, json=1)
        to_tail = {"expectedGeneration": 0, "config": {"streams": [STREAM], "start": "tail"}}
        first = await g.http.post(f"{GROUP}/reset", json=to_tail)
        again = await g.http.post(f"{GROUP}/reset", json=to_tail)
        found = (await g.http.get(GROUP)).json()
        missing = await g.http.post(f"{GROUPS}/none/reset", json={})

    assert (first.status_code, first.json()["generation"]) == (200, 1)
    assert problem(again, 412) == "generation-mismatch"
    assert (found["generation"], found["lag"]["events"]) == (1, 0)
    assert problem(missing, 404) == "reader-group-not-found"


async def test_a_checkpoint_is_complete_when_every_reader_has_reached_it() -> None:
    async with group() as g:
        await g.http.post(EVENTS, json=1)
        workers = g.bench.client.reader_group("plant/w")
        async with workers.reader("one", FAST) as reader:
            await anext(reader)
            checkpoints = f"{GROUP}/checkpoints"
            begun = await g.http.post(checkpoints, json={"name": "c"}, params={"wait": "0"})
            known = await g.http.post(checkpoints, json={"name": "c"})
            under_way = (await g.http.get(GROUP)).json()["checkpoints"]
            await reader.close()
            done = await g.http.get(begun.headers["location"], params={"wait": "5"})
        at_once = await g.http.post(checkpoints)

    assert (begun.status_code, begun.json()["waiting"]) == (202, ["one"])
    assert problem(known, 409) == "checkpoint-exists"
    assert under_way == [{"name": "c", "kind": "user", "waiting": ["one"]}]
    assert done.json()["state"] == "complete"
    assert set(done.json()["streamCuts"]) == {STREAM}
    assert (at_once.status_code, at_once.json()["state"]) == (201, "complete")


async def test_checkpoints_can_be_cancelled_and_are_bounded() -> None:
    async with group(checkpointsMax=1) as g:
        checkpoints, soon = f"{GROUP}/checkpoints", {"wait": "0"}
        async with g.bench.client.reader_group("plant/w").reader("one", FAST):
            await g.http.post(checkpoints, json={"name": "c"}, params=soon)
            many = await g.http.post(checkpoints, json={"name": "d"}, params=soon)
            cancelled = await g.http.delete(checkpoints)
            gone = await g.http.get(f"{checkpoints}/c")
            not_reached = await g.http.get(f"{GROUP}/streamcuts", params=soon)
        cuts = await g.http.get(f"{GROUP}/streamcuts")

    assert problem(many, 429) == "too-many-checkpoints"
    assert cancelled.status_code == 204
    assert problem(gone, 404) == "checkpoint-not-found"
    assert problem(not_reached, 503) == "unavailable"
    assert cuts.json() == {"streamCuts": {STREAM: {"0": {"offset": 0, "eventIndex": 0}}}}


async def test_a_reader_is_put_offline_where_it_is_said_to_have_processed() -> None:
    async with group() as g:
        await g.http.post(
            EVENTS, content=b"1\n2\n3", headers={"content-type": "application/x-ndjson"}
        )
        workers = g.bench.client.reader_group("plant/w")
        async with workers.reader("one", FAST) as reader:
            event = await anext(reader)
            said = {"positions": {event.segment: {"offset": 0, "eventIndex": 2}}}
            offline = await g.http.request("DELETE", f"{GROUP}/readers/one", json=said)
            again = await g.http.delete(f"{GROUP}/readers/one")
        lag = (await g.http.get(GROUP)).json()["lag"]

    assert offline.status_code == 204
    assert problem(again, 404) == "reader-not-found"
    assert lag["events"] == 1


async def test_a_group_releases_what_it_is_told_to() -> None:
    async with group(retentionType="MANUAL") as g:
        body = {"stream": STREAM, "cut": {"0": 0}}
        released = await g.http.post(f"{GROUP}/release", json=body)
        told = (await g.http.get(EVENTS.replace("events", "subscribers"))).json()

    assert released.status_code == 200
    cut = {"0": {"offset": 0, "eventIndex": 0}}
    assert told == {"subscribers": [{"subscriber": "plant/w", "generation": 0, "cut": cut}]}


async def test_positions_where_no_event_can_lie_are_refused_and_behind_a_block_is_the_next() -> (
    None
):
    async with gateway() as g:
        lines = {"content-type": "application/x-ndjson"}
        assert (await g.http.post(EVENTS, content=b"1\n2\n3", headers=lines)).status_code == 200
        end = len(g.bench.segments[0].data)

        async def create(name: str, offset: int, index: int) -> Any:
            start = {"0": {"offset": offset, "eventIndex": index}}
            body = {"readerGroupName": name, "streams": [{"stream": STREAM, "start": start}]}
            return await g.http.post(GROUPS, json=body)

        made = await create("w", 0, 3)
        assert made.json()["config"]["streams"][0]["start"] == {
            "0": {"offset": end, "eventIndex": 0}
        }
        for offset, index in ((0, 4), (1, 0), (end, 1), (end + 1, 0), (-1, 1)):
            assert problem(await create("bad", offset, index), 400) == "invalid-position"
        config = {"streams": [{"stream": STREAM, "start": {"0": {"offset": 0, "eventIndex": 9}}}]}
        reset = await g.http.post(f"{GROUP}/reset", json={"config": config})
        assert problem(reset, 400) == "invalid-position"

        async with g.bench.client.reader_group("plant/w").reader("slow", FAST):
            place = {f"{STREAM}/0.#epoch.0": {"offset": end, "eventIndex": 1}}
            refused = await g.http.request(
                "DELETE", f"{GROUP}/readers/slow", json={"positions": place}
            )
        assert problem(refused, 400) == "invalid-position"
