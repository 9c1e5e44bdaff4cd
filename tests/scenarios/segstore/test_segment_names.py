"""Names that the store accepts: one allow-list, one spelling."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.common.errors import InvalidName
from anabranch.common.model.names import (
    StreamRef,
    any_stream_name,
    parse_segment_name,
    scope_name,
    segment_id,
    segment_name,
    transaction_segment_name,
    transient_name,
)
from anabranch.segstore.domain.container.decide import check_segment_name
from kit.thorough import one_in

PLAIN = re.compile(
    r"[A-Za-z0-9.-]{1,255}/(_[A-Za-z0-9.-]{1,254}|[A-Za-z0-9.-]{1,250})"
    r"/(0|[1-9][0-9]{0,9})\.#epoch\.(0|[1-9][0-9]{0,9})",
    re.ASCII,
)
HOSTILE = [
    "", "/", "a", "a/b", "a/b/", "a//0.#epoch.0", "/b/0.#epoch.0", "a/b/0", "a/b/00.#epoch.0",
    "a/b/0.#epoch.01", "a/b/-1.#epoch.0", "a/b/+1.#epoch.0", "a/b/1_0.#epoch.0", "a/b/٣.#epoch.0",
    "a/b/0.#epoch.٣", "a/b/0.#epoch.0\n", "a/b/0.#epoch.0\0", "a/b\0/0.#epoch.0",
    "../../etc/0.#epoch.0", "a/b/c/0.#epoch.0", "a/%2e%2e/0.#epoch.0", "a/b%00/0.#epoch.0",
    "а/b/0.#epoch.0", "a/ｂ/0.#epoch.0", "a/b\u200b/0.#epoch.0", "a/\ud800/0.#epoch.0",
    "_system/b/0.#epoch.0", "a/b_/0.#epoch.0", "a/__b/0.#epoch.0", "a/_/0.#epoch.0",
    "a/*/0.#epoch.0", "a/>/0.#epoch.0",
    "a/b c/0.#epoch.0", "a/[b]?/0.#epoch.0", "a/b/2147483648.#epoch.0", "a/b/0.#epoch.2147483648",
    "a/b/0.#epoch.0#transaction.00ff", "a/b/0.#epoch.0#transient.w", "a/b/0.#EPOCH.0",
    f"a/b/0.#epoch.0#transaction.{'0' * 31}", f"a/b/0.#epoch.0#transaction.{'A' * 32}",
    f"a/b/0.#epoch.0#transaction.{'0' * 32}.", f"a/b/0#transaction.{'0' * 32}",
    f"a/b/0.#epoch.0#transaction.{'0' * 32}#transaction.{'1' * 32}",
    f"a/b/0.#epoch.0#transient.{'0' * 32}#transient.{'1' * 32}",
    f"a/b/0.#epoch.0#transient.{'1' * 32}#transaction.{'0' * 32}",
    "x" * 256 + "/b/0.#epoch.0", "a/" + "x" * 251 + "/0.#epoch.0", "x" * 10_000,
    "a/_" + "x" * 255 + "/0.#epoch.0",
    "a/b/" + "9" * 10_000 + ".#epoch.0",
]  # fmt: skip
PARTS = st.sampled_from(
    ["a", "b.c", "..", ".", "%2e", "\0", "/", "*", ">", "_", " ", "\n", "0", "7", "٣", "а", "é",
     "#epoch", ".#epoch.", "#transaction.", "-1", "00", "4294967296", "x" * 300],
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_segment_name(name)


@settings(max_examples=500 // one_in(4))
@given(
    st.text()
    | st.lists(PARTS, max_size=9).map("".join)
    | st.tuples(PARTS, PARTS, PARTS, PARTS).map(lambda p: f"{p[0]}/{p[1]}/{p[2]}.#epoch.{p[3]}")
)
@example("a/b/0.#epoch.0")
def test_what_is_accepted_is_plain_and_spelled_in_one_way(name: str) -> None:
    try:
        check_segment_name(name)
    except InvalidName:
        return
    assert PLAIN.fullmatch(name)
    assert segment_name(*parse_segment_name(name)) == name


@given(
    st.from_regex(r"[A-Za-z0-9.\-]{1,20}", fullmatch=True),
    st.sampled_from(["", "_RG"]),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
)
def test_every_name_that_the_controller_gives_is_accepted(
    word: str, internal: str, epoch: int, number: int
) -> None:
    ref = StreamRef(scope_name(word), any_stream_name(internal + word))
    name = segment_name(ref, segment_id(epoch, number))
    check_segment_name(name)
    check_segment_name(transaction_segment_name(name, "0a" * 16))
    check_segment_name(transaction_segment_name(name, "0a" * 16, "0b" * 16))
    check_segment_name(transient_name(name, bytes(16)))
    check_segment_name(transient_name(transaction_segment_name(name, "0a" * 16), bytes(16)))
