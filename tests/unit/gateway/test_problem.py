"""What callers are told: every error of the tree as a status and a problem document."""

import msgspec
import pytest
from starlette.requests import Request

from anabranch.client.wire.http_calls import GatewayCalls
from anabranch.common import errors as e
from anabranch.common.errors import ERRORS_BY_CODE, AnabranchError
from anabranch.gateway.http.edge.problem import (
    PROBLEM,
    STATUS_BY_CODE,
    UNEXPECTED,
    _on_error,
    document_of,
    problem_of,
    status_of,
)
from kit.client_bench import STREAM
from kit.gateway_bench import gateway, problem

TABLE: list[tuple[type[AnabranchError], int, bool]] = [
    (e.InvalidName, 400, False),
    (e.InvalidRequest, 400, False),
    (e.Unauthorized, 403, False),
    (e.ScopeNotFound, 404, False),
    (e.StreamNotFound, 404, False),
    (e.NotAcceptable, 406, False),
    (e.BodyTooSlow, 408, False),
    (e.ScopeExists, 409, False),
    (e.StreamExists, 409, False),
    (e.StreamSealed, 409, False),
    (e.SegmentTruncated, 410, False),
    (e.ReaderGroupExists, 409, False),
    (e.Parked, 409, False),
    (e.ReaderInUse, 409, False),
    (e.CheckpointExists, 409, False),
    (e.ReaderGroupNotFound, 404, False),
    (e.ReaderNotFound, 404, False),
    (e.SubscriberNotFound, 404, False),
    (e.ReaderRemoved, 410, True),
    (e.ReaderGroupReset, 410, True),
    (e.GenerationMismatch, 412, False),
    (e.TooManyReaders, 429, False),
    (e.TooManyCheckpoints, 429, False),
    (e.ScopeNotEmpty, 412, False),
    (e.StreamNotSealed, 412, False),
    (e.EventTooLarge, 413, False),
    (e.BodyTooLarge, 413, False),
    (e.UnsupportedMediaType, 415, False),
    (e.IdempotencyMismatch, 422, False),
    (e.CorruptBlock, 500, False),
    (AnabranchError, 500, False),
    (e.Unavailable, 503, True),
    (e.BufferFull, 503, True),
    (e.ConnectionLost, 503, True),
    (e.WrongHost, 503, True),
    (e.Overloaded, 503, True),
    (e.OutcomeUnknown, 504, False),
]


@pytest.mark.parametrize(("kind", "status", "retryable"), TABLE)
def test_an_error_becomes_the_status_that_says_what_to_do(
    kind: type[AnabranchError], status: int, retryable: bool
) -> None:
    answer = problem_of(kind("it went wrong", remedy="do this", of=7), "/v1/x")

    assert answer.status_code == status
    assert answer.media_type == "application/problem+json"
    assert ("retry-after" in answer.headers) is (status == 503)
    for text in (f'"code":"{kind.code}"', '"detail":"it went wrong"', '"fields":{"of":7}'):
        assert text.encode() in answer.body
    assert (b'"retryable":true' in answer.body) is retryable


def test_every_error_of_the_tree_has_a_status_and_every_exception_to_a_branch_is_an_error() -> None:
    assert all(400 <= status_of(kind("x")) < 600 for kind in ERRORS_BY_CODE.values())
    assert set(ERRORS_BY_CODE) >= set(STATUS_BY_CODE)


async def test_what_the_framework_refuses_is_a_problem_document_too() -> None:
    async with gateway() as g:
        assert problem(await g.http.get("/nowhere"), 404) == "not-found"
        assert problem(await g.http.patch("/ping"), 405) == "method-not-allowed"
        for body in ("{", "[]", "{}", '{"scopeName": 3}', '{"scopeName": "a", "more": 1}'):
            answer = await g.http.post(
                "/v1/scopes", content=body, headers={"content-type": "application/json"}
            )
            assert problem(answer, 400) == "invalid-request"
            assert answer.json()["fields"]["at"].startswith("body")


async def test_json_without_its_content_type_is_refused_with_the_header_to_send() -> None:
    async with gateway() as g:
        form = {"content-type": "application/x-www-form-urlencoded"}
        unread = await g.http.post("/v1/scopes", content=b'{"scopeName": "a"}', headers=form)
        wrong = await g.http.post("/v1/scopes", json=[])

    assert problem(unread, 400) == problem(wrong, 400) == "invalid-request"
    assert "Content-Type: application/json" in unread.json()["remedy"]
    assert "Content-Type" not in wrong.json()["remedy"]


async def test_a_defect_is_told_without_its_text() -> None:
    async with gateway() as g:

        def break_down(name: str) -> None:
            raise RuntimeError("the secret inside")

        g.bench.control.before_query = break_down
        answer = await g.http.get("/v1/scopes")

    assert problem(answer, 500) == "error"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


async def test_a_defect_is_answered_without_its_text() -> None:
    request = Request({"type": "http", "path": "/v1/x", "headers": [], "method": "GET"})

    answer = await _on_error(request, e.Defect("a step raised", cause="KeyError('secret')"))

    assert answer.status_code == 500
    assert b"secret" not in answer.body
    assert UNEXPECTED.encode() in answer.body


def test_words_of_a_caller_that_no_encoding_has_are_told_with_question_marks() -> None:
    answer = problem_of(e.InvalidName("not allowed", name="a\ud800b"), "/v1/\udfff")

    assert answer.status_code == 400
    assert b'"a?b"' in answer.body


async def test_what_a_caller_over_http_can_do_is_told_in_requests() -> None:
    scope, stream = f"/v1/scopes/{STREAM.partition('/')[0]}", STREAM.partition("/")[2]
    async with gateway() as g:
        missing = await g.http.get(f"{scope}/streams/none")
        large = await g.http.post(
            f"{scope}/streams/{stream}/events",
            content=bytes(9 << 20),
            headers={"content-type": "application/octet-stream"},
        )

    assert problem(missing, 404) == "stream-not-found"
    assert f"`GET {scope}/streams` lists the streams" in missing.json()["remedy"]
    assert problem(large, 413) == "event-too-large"
    assert large.json()["remedy"].startswith("split the event; only the Python client")


async def test_a_python_program_behind_a_gateway_gets_the_words_of_the_client() -> None:
    document = document_of(e.StreamNotSealed("not sealed", stream="demo/one"), "/v1/x")
    calls = GatewayCalls("http://127.0.0.1:9")
    told = calls.refusal(412, PROBLEM, msgspec.json.encode(document))
    await calls.close()

    assert "PUT /v1/scopes/demo/streams/one/state" in str(document["remedy"])
    assert told.remedy == '`client.streams.seal("demo/one")` first'
