"""What an error tells its caller to do, at each door."""

import pickle
import traceback

import pytest

from anabranch.common.errors import (
    DOORS,
    CheckpointNotFound,
    Door,
    EventTooLarge,
    FieldValue,
    Invalid,
    InvalidRequest,
    Overloaded,
    Parked,
    Remedy,
    StreamNotFound,
    StreamNotSealed,
    Unavailable,
    from_body,
)


@pytest.mark.parametrize(
    ("door", "remedy"),
    [
        (None, "seal the stream first"),
        ("api", '`client.streams.seal("demo/one")` first'),
        (
            "http",
            "`PUT /v1/scopes/demo/streams/one/state` with the body "
            '`{"streamState": "SEALED"}` first',
        ),
        ("command", "`anabranch stream seal demo/one` first"),
    ],
)  # fmt: skip
def test_each_door_has_its_words(door: Door | None, remedy: str) -> None:
    error = StreamNotSealed("the stream is not sealed", stream="demo/one")

    assert error.remedy_for(door) == remedy


def test_a_python_program_gets_the_words_of_the_client() -> None:
    error = StreamNotSealed("the stream is not sealed", stream="demo/one")

    assert error.remedy == error.remedy_for("api")


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": "demo/one"},
        {"scope": "demo", "stream": "one"},
        {"segment": "demo/one/0.#epoch.0"},
        {"segment": "demo/one/0.#epoch.0", "stream": None},
        {"stream": "demo/one", "segment": "other/two/0.#epoch.0"},
    ],
)
def test_a_stream_is_known_from_several_fields(fields: dict[str, FieldValue]) -> None:
    error = StreamNotFound("no such stream")
    error.fields = fields

    assert "`anabranch stream create demo/one`" in error.remedy_for("command")
    assert "`GET /v1/scopes/demo/streams`" in error.remedy_for("http")


@pytest.mark.parametrize("fields", [{}, {"stream": "one"}, {"stream": ""}, {"stream": "a/_MARKb"}])
def test_without_the_name_of_a_stream_the_remedy_is_the_general_one(
    fields: dict[str, FieldValue],
) -> None:
    error = StreamNotFound("no such stream")
    error.fields = fields

    assert {error.remedy_for(door) for door in DOORS} == {"check the name, or create the stream"}


def test_all_places_of_the_words_must_be_known() -> None:
    group = CheckpointNotFound("there is none", group="demo/readers")
    both = CheckpointNotFound("there is none", group="demo/readers", name="x")

    assert group.remedy_for("command") == "check the name, or begin the checkpoint"
    assert "--name x" in both.remedy_for("command")


def test_words_of_the_raiser_come_first_then_its_text_then_the_class() -> None:
    known = InvalidRequest.default_remedy
    plain = InvalidRequest("x", remedy="raiser")
    some = InvalidRequest("x", remedy=Remedy(http="raiser http"))
    none = InvalidRequest("x")

    assert [plain.remedy_for(door) for door in DOORS] == ["raiser", "raiser", "raiser"]
    assert [some.remedy_for(door) for door in DOORS] == [known.text, "raiser http", known.command]
    assert [none.remedy_for(door) for door in DOORS] == [known.text, known.http, known.command]


def test_a_kind_without_words_has_those_of_its_family_and_never_mixes_them() -> None:
    assert "Retry-After" in Unavailable("away").remedy_for("http")
    assert Overloaded("full").remedy_for("http") != Unavailable("away").remedy_for("http")
    assert Parked("parked", aggregate="scope:a").remedy_for("http") == Parked("x").remedy


def test_braces_in_a_raisers_words_are_only_text() -> None:
    error = Invalid("x", remedy='write {"nats": "…"}', stream="demo/one")

    assert error.remedy == 'write {"nats": "…"}'


@pytest.mark.parametrize("sender", [None, *DOORS])
def test_the_receiver_of_an_error_chooses_the_words(sender: Door | None) -> None:
    sent = StreamNotSealed("the stream is not sealed", stream="demo/one").to_body(sender)
    received = from_body(sent)

    assert received.own_remedy is None
    assert received.remedy_for("command") == "`anabranch stream seal demo/one` first"
    assert received.to_body(sender) == sent


def test_a_raisers_text_and_that_of_another_release_cross_the_wire() -> None:
    sent = Unavailable("no controller answers", remedy="start one").to_body()
    older = {**Unavailable("no controller answers").to_body(), "remedy": "have patience"}

    assert {from_body(sent).remedy_for(door) for door in DOORS} == {"start one"}
    assert from_body(older).remedy_for("http") == "have patience"


def test_an_unknown_code_keeps_its_remedy() -> None:
    error = from_body({"code": "invented", "message": "odd", "remedy": "do this"})

    assert (error.code, error.message, error.remedy) == ("error", "odd", "do this")


def test_a_copy_has_the_words_of_the_raiser() -> None:
    error = EventTooLarge("too large", remedy=Remedy(http="cut it"), size=9)

    assert error.copy().to_body("http") == error.to_body("http")
    assert error.copy().remedy == error.remedy


def test_a_traceback_ends_with_the_remedy_and_the_notes_of_others() -> None:
    error = StreamNotSealed("the stream is not sealed")
    error.fields = {"stream": "demo/one"}
    error.add_note("while tidying up")

    *_, text, remedy, note = "".join(traceback.format_exception(error)).splitlines()

    assert text.endswith("StreamNotSealed: the stream is not sealed (stream=demo/one)")
    assert remedy == 'try: `client.streams.seal("demo/one")` first'
    assert note == "while tidying up"


def test_an_error_that_went_to_another_process_has_its_remedy() -> None:
    error = EventTooLarge("too large", remedy=Remedy("cut it"), size=9)

    assert pickle.loads(pickle.dumps(error)).to_body() == error.to_body()
