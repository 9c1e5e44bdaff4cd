"""Characters that a terminal acts upon are shown, and not sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.escapes import readable, unescaped


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain \xc3\xa4 \xe2\x82\xac", "plain ä €"),
        (b"a\tb\nc", "a\tb\nc"),
        (b"\x1b[2J\x07\r\x7f", r"\x1b[2J\x07\x0d\x7f"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("\x9b31m\u202eabc\u2066\u2028".encode(), r"\x9b31m\u202eabc\u2066\u2028"),
    ],
)
def test_control_characters_are_escaped(data: bytes, shown: str) -> None:
    assert readable(data) == shown


def test_in_a_line_tabs_and_newlines_are_escaped_too() -> None:
    assert readable(b"a\tb\nc", in_line=True) == r"a\x09b\x0ac"


@given(st.binary())
def test_nothing_that_is_shown_drives_a_terminal(data: bytes) -> None:
    shown = readable(data)
    assert all(ord(one) >= 0x20 or one in "\t\n" for one in shown)
    assert not any(0x7F <= ord(one) < 0xA0 for one in shown)
    shown.encode()


def test_a_user_types_control_characters_with_backslashes() -> None:
    assert unescaped(r"a\tb\\t") == "a\tb\\t"
    for text in (r"\e", "\\", r"\ "):
        with pytest.raises(ValueError, match="unknown escape"):
            unescaped(text)
