"""Changes that take long, and changes that are sent again: operations and idempotency keys."""

import pytest

from anabranch.common.errors import IdempotencyMismatch, OutcomeUnknown, StreamNotFound, Unavailable
from anabranch.common.runtime.clock import SystemClock
from anabranch.gateway.http.edge.used_keys import UsedKeys
from kit.fake_admin import AdminController
from kit.gateway_bench import GatewayBench, gateway, problem

SENSORS = "/v1/scopes/plant/streams/sensors"
SCALE = {
    "segmentsToSeal": [0],
    "newRanges": [{"keyStart": 0, "keyEnd": 0.5}, {"keyStart": 0.5, "keyEnd": 1}],
}
FIXED = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}
KEY = {"idempotency-key": "k"}


def controller_of(g: GatewayBench) -> AdminController:
    controller = g.bench.controller
    assert isinstance(controller, AdminController)
    return controller


async def test_a_change_that_takes_long_is_answered_with_its_operation() -> None:
    async with gateway() as g:
        controller_of(g).held = {"scale_stream"}
        accepted = await g.http.post(f"{SENSORS}/scale", json=SCALE, params={"wait": 0})
        operation = accepted.headers["location"]
        running = (await g.http.get(operation)).json()
        unsettled = (await g.http.get(operation, params={"wait": 0.01})).json()
        controller_of(g).release()
        done = (await g.http.get(operation, params={"wait": 5})).json()

    assert accepted.status_code == 202
    assert operation == f"/v1/operations/{accepted.json()['operation']}"
    assert running == unsettled
    assert (running["state"], running["kind"]) == ("running", "scale")
    assert (running["scope"], running["stream"]) == ("plant", "sensors")
    assert running["step"] == "seal_segments"
    assert running["sinceMs"]
    assert done["state"] == "succeeded"
    assert done["sinceMs"] == 0


async def test_what_became_of_a_failed_operation_is_told_with_its_error() -> None:
    async with gateway() as g:
        controller = controller_of(g)
        controller.held = {"seal_stream"}
        controller.failing = StreamNotFound("it went", stream="a/x")
        accepted = await g.http.put(
            f"{SENSORS}/state",
            json={"streamState": "SEALED"},
            headers={"prefer": "respond-async, wait=0"},
        )
        controller.release()
        failed = (await g.http.get(accepted.headers["location"])).json()
        listed = (await g.http.get("/v1/operations", params={"state": "failed"})).json()
        running = (await g.http.get("/v1/operations", params={"state": "running"})).json()
        unknown = await g.http.get("/v1/operations/none")
        wrong = await g.http.get("/v1/operations", params={"state": "odd"})

    assert accepted.status_code == 202
    assert failed["error"] == {
        "code": "stream-not-found", "message": "it went",
        "remedy": "`GET /v1/scopes/a/streams` lists the streams; "
        "`POST /v1/scopes/a/streams` creates one",
        "fields": {"stream": "a/x"},
    }  # fmt: skip
    assert listed["operations"] == [failed]
    assert running["operations"] == []
    assert problem(unknown, 404) == "operation-not-found"
    assert problem(wrong, 400) == "invalid-request"


@pytest.mark.parametrize(
    ("params", "headers", "expected"),
    [
        ({"wait": "0.5"}, {}, 0.5),
        ({"wait": "1e9"}, {}, 30.0),
        ({}, {"prefer": "wait=2"}, 2.0),
        ({}, {"prefer": 'foo, Wait="3"'}, 3.0),
        ({}, {"prefer": "wait=999999999"}, 30.0),
        ({}, {"prefer": "respond-async"}, 0.0),
        ({}, {"prefer": "handling=lenient"}, 30.0),
        ({}, {}, 30.0),
        ({"wait": "1"}, {"prefer": "wait=2"}, 1.0),
    ],
)
async def test_a_change_is_waited_for_as_long_as_its_caller_asks(
    params: dict[str, str], headers: dict[str, str], expected: float
) -> None:
    async with gateway() as g:
        waits: list[float | None] = []
        execute = g.bench.control.execute

        async def watched(command, *, timeout_s, wait_s=None):  # type: ignore[no-untyped-def]
            waits.append(wait_s)
            return await execute(command, timeout_s=timeout_s, wait_s=wait_s)

        g.bench.control.execute = watched  # type: ignore[method-assign]
        await g.http.post(f"{SENSORS}/scale", json=SCALE, params=params, headers=headers)

    assert waits == [expected]


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "x"])
async def test_what_is_no_time_to_wait_is_refused(wait: str) -> None:
    async with gateway() as g:
        answer = await g.http.post(f"{SENSORS}/scale", json=SCALE, params={"wait": wait})
        asked = await g.http.get("/v1/operations/x", params={"wait": wait})
    assert problem(answer, 400) == "invalid-request"
    assert problem(asked, 400) == "invalid-request"


async def test_a_change_with_the_same_key_is_made_once_however_it_is_written() -> None:
    async with gateway() as g:
        first = await g.http.post(f"{SENSORS}/scale", json=SCALE, headers=KEY)
        ranges = '[{"keyEnd":0.5,"keyStart":0},{"keyStart":0.5,"keyEnd":1}]'
        text = f'{{"newRanges": {ranges}, "segmentsToSeal":[0]}}'
        again = await g.http.post(
            f"{SENSORS}/scale", content=text, params={"wait": 1},
            headers={**KEY, "content-type": "application/json"},
        )  # fmt: skip
        other = await g.http.post(
            f"{SENSORS}/scale", json={**SCALE, "expectedEpoch": 0}, headers=KEY
        )
        elsewhere = await g.http.put(
            f"{SENSORS}/state", json={"streamState": "SEALED"}, headers=KEY
        )
        keyless = await g.http.post(f"{SENSORS}/scale", json=SCALE)
        commanded = [command.kind for command in controller_of(g).commanded.values()]

    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert problem(other, 422) == "idempotency-mismatch"
    assert elsewhere.status_code == 200
    assert problem(keyless, 409) == "stream-sealed"
    assert commanded == ["scale_stream", "seal_stream"]


async def test_every_change_takes_a_key() -> None:
    changes = [
        ("POST", "/v1/scopes", {"scopeName": "s"}, 201),
        ("POST", "/v1/scopes/s/streams", {"streamName": "x", "scalingPolicy": FIXED}, 201),
        ("PUT", "/v1/scopes/s/streams/x", {"scalingPolicy": FIXED, "streamTags": ["t"]}, 200),
        ("POST", "/v1/scopes/s/streams/x/scale", SCALE, 200),
        ("POST", "/v1/scopes/s/streams/x/truncate", {"streamCut": {"0": 0}}, 200),
        ("PUT", "/v1/scopes/s/streams/x/state", {"streamState": "SEALED"}, 200),
        ("DELETE", "/v1/scopes/s/streams/x", None, 204),
        ("DELETE", "/v1/scopes/s", None, 204),
    ]
    async with gateway() as g:
        for method, path, body, status in changes:
            made = len(controller_of(g).commanded)
            once, twice = [
                await g.http.request(method, path, json=body, headers=KEY) for _ in range(2)
            ]
            assert once.status_code == status, once.text
            assert len(controller_of(g).commanded) == made + 1
            assert twice.status_code == status, twice.text


async def test_a_key_whose_request_was_refused_may_be_used_again() -> None:
    async with gateway() as g:
        refused = await g.http.post(
            f"{SENSORS}/scale", json={**SCALE, "segmentsToSeal": [9]}, headers=KEY
        )
        malformed = await g.http.post(f"{SENSORS}/scale", json={}, headers=KEY)
        scaled = await g.http.post(f"{SENSORS}/scale", json=SCALE, headers=KEY)
        empty = await g.http.post(f"{SENSORS}/scale", json=SCALE, headers={"idempotency-key": ""})

    assert problem(refused, 412) == "scale-refused"
    assert problem(malformed, 400) == "invalid-request"
    assert scaled.status_code == 200
    assert problem(empty, 400) == "invalid-request"


class StandingClock(SystemClock):
    """Stands still until it is moved."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def test_used_keys_are_kept_within_a_count_and_an_age() -> None:
    clock = StandingClock()
    keys = UsedKeys(clock, count_max=2, age_s_max=10)
    for key in ("a", "b", "c"):
        with keys.using(key, "x"):
            pass
    with keys.using("a", "y"), pytest.raises(IdempotencyMismatch), keys.using("c", "y"):
        pass
    clock.now_s += 10
    with keys.using("c", "y"):
        pass


def test_a_key_stays_used_when_the_outcome_is_not_known() -> None:
    keys = UsedKeys(StandingClock(), count_max=2, age_s_max=10)
    with pytest.raises(OutcomeUnknown), keys.using("a", "x"):
        raise OutcomeUnknown("late")
    with pytest.raises(IdempotencyMismatch), keys.using("a", "y"):
        pass
    with pytest.raises(Unavailable), keys.using("b", "x"):
        raise Unavailable("away")
    with keys.using("b", "y"):
        pass
