"""Templates of events: what they may say, and what they refuse."""

import pytest

from anabranch.cli.templates import EVENT_FIELDS, Field, parse_template


def test_a_template_is_text_and_fields() -> None:
    found = parse_template(r"{key}\t{payload}\n")
    assert found.parts == (Field("key"), b"\t", Field("payload"), b"\n")
    assert not found.has_positions
    assert parse_template("{position}").has_positions


def test_escapes_and_doubled_braces_are_characters() -> None:
    assert parse_template(r"\t\n\r\0\\n").parts == (b"\t\n\r\0\\n",)
    assert b"".join(part for part in parse_template("{{é}}").parts if isinstance(part, bytes)) == (
        "{é}".encode()
    )
    assert parse_template("\udcff").parts == (b"\xff",), "as the shell gave it"


def test_an_unknown_field_is_refused_with_a_list_of_the_fields() -> None:
    with pytest.raises(ValueError, match="unknown field") as refused:
        parse_template("{keys}")
    assert all(name in str(refused.value) for name in EVENT_FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        "{}", "{0}", "{key.upper}", "{key.__class__}", "{payload[0]}", "{key!r}", "{offset:05d}",
        "{key:{size}}", "{ key }", "{key", "key}", r"\x41", "\\", r"\{key}",
    ],
)  # fmt: skip
def test_everything_but_plain_names_and_known_escapes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_template(text)
