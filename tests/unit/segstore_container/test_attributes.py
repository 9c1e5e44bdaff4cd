"""The arithmetic of attributes, and attributes over a container's life."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import (
    AnabranchError,
    AttributeMismatch,
    CorruptJournal,
    InvalidRequest,
    TooManyAttributes,
)
from anabranch.common.wire.messages import (
    AttributeUpdate,
    AttributeValue,
    AttributeValues,
    Done,
    Failed,
    Stamp,
    UpdateKind,
)
from anabranch.segstore.domain.container.attributes import (
    ATTRIBUTES_MAX,
    VALUE_MAX,
    VALUE_MIN,
    AttributeChange,
    apply_changes,
    change_attributes,
)
from kit.container_driver import ContainerDriver

A, B = b"a" * 16, b"b" * 16
IDS = [bytes([number]) * 16 for number in range(4)]
KINDS: list[UpdateKind] = [
    "create", "replace", "replace-if-greater", "replace-if-equals", "accumulate",
]  # fmt: skip

# present and value: what is there, what the update says (- is None); then what is there after
ARITHMETIC = """
kind                present  value  expected  after
create              -        3      -         3
create              1        3      -         mismatch
replace             -        3      -         3
replace             1        3      -         3
replace             1        -      -         -
replace-if-greater  -        3      -         3
replace-if-greater  2        3      -         3
replace-if-greater  3        3      -         mismatch
replace-if-greater  4        3      -         mismatch
replace-if-equals   -        3      -         3
replace-if-equals   1        3      -         mismatch
replace-if-equals   1        3      1         3
replace-if-equals   2        3      1         mismatch
replace-if-equals   -        3      1         mismatch
replace-if-equals   1        -      1         -
accumulate          -        3      -         3
accumulate          2        3      -         5
accumulate          2        -3     -         -1
accumulate          1        -      -         invalid
create              -        -      -         invalid
replace-if-greater  1        -      -         invalid
"""
ROWS = [line.split() for line in ARITHMETIC.strip().splitlines()[1:]]


def number(text: str) -> int | None:
    return None if text == "-" else int(text)


@pytest.mark.parametrize(("kind", "present", "value", "expected", "after"), ROWS)
def test_each_kind_of_update_does_what_its_name_says(
    kind: UpdateKind, present: str, value: str, expected: str, after: str
) -> None:
    before = {} if present == "-" else {A: int(present)}
    update = AttributeUpdate(A, kind, number(value), number(expected))
    if after in ("mismatch", "invalid"):
        with pytest.raises(AttributeMismatch if after == "mismatch" else InvalidRequest):
            change_attributes(before, [update])
    else:
        found = apply_changes(before, change_attributes(before, [update]))
        assert found.get(A) == number(after)


values = st.integers(VALUE_MIN, VALUE_MAX)
attributes = st.dictionaries(st.sampled_from(IDS), values)
updates = st.lists(
    st.builds(AttributeUpdate, st.sampled_from(IDS), st.sampled_from(KINDS), values, values),
    max_size=4,
)


@given(attributes, updates)
def test_updates_are_all_performed_or_none_and_stay_in_range(
    before: dict[bytes, int], wanted: list[AttributeUpdate]
) -> None:
    copy = dict(before)
    try:
        changes = change_attributes(before, wanted)
    except (AttributeMismatch, InvalidRequest):
        changes = ()
    after = apply_changes(before, changes)
    assert before == copy
    assert all(VALUE_MIN <= value <= VALUE_MAX for value in after.values())
    touched = {change.attribute for change in changes}
    assert all(after.get(key) == before.get(key) for key in IDS if key not in touched)


@given(attributes, updates)
def test_what_was_done_once_is_never_done_again(
    before: dict[bytes, int], wanted: list[AttributeUpdate]
) -> None:
    try:
        changes = change_attributes(before, wanted)
    except (AttributeMismatch, InvalidRequest):
        return
    after = apply_changes(before, changes)
    if after != before:
        with pytest.raises(CorruptJournal):
            apply_changes(after, changes)


def test_attributes_and_updates_are_bounded() -> None:
    full = {bytes([n // 256, n % 256]) * 8: n for n in range(ATTRIBUTES_MAX)}
    with pytest.raises(TooManyAttributes):
        change_attributes(full, [AttributeUpdate(A, "replace", 1)])
    some = next(iter(full))
    assert change_attributes(full, [AttributeUpdate(some, "replace", 1)])
    swap = [AttributeUpdate(A, "create", 1), AttributeUpdate(some, "replace", None)]
    assert len(apply_changes(full, change_attributes(full, swap))) == ATTRIBUTES_MAX
    many = [AttributeUpdate(key, "replace", 1) for key in (*full, A)]
    twice = [AttributeUpdate(A, "accumulate", 1)] * 2
    for wrong in (many, twice, [AttributeUpdate(b"short", "replace", 1)]):
        with pytest.raises(InvalidRequest):
            change_attributes({}, wrong)
    with pytest.raises(InvalidRequest, match="64-bit"):
        change_attributes({A: VALUE_MAX}, [AttributeUpdate(A, "accumulate", 1)])


def codes(driver: ContainerDriver) -> list[str]:
    driver.commit()
    return [
        reply.code if isinstance(reply, Failed) else type(reply).__name__
        for reply in driver.take_replies()
    ]


def values_of(driver: ContainerDriver) -> dict[bytes, int]:
    driver.attributes()
    driver.commit()
    reply = driver.take_replies()[-1]
    assert isinstance(reply, AttributeValues)
    return {found.attribute: found.value for found in reply.values}


def test_a_repeated_request_is_recognised_before_its_condition() -> None:
    driver = ContainerDriver()
    driver.create()
    once = AttributeUpdate(A, "replace-if-equals", 1, None)
    driver.update(1, once)
    driver.update(1, once)
    driver.update(2, once)
    driver.update(2, AttributeUpdate(A, "accumulate", 10))
    assert codes(driver) == ["Done", "Done", "Done", "attribute-mismatch", "Done"]
    assert values_of(driver) == {A: 11}
    driver.crash()
    driver.update(2, AttributeUpdate(A, "accumulate", 10))
    assert codes(driver) == ["Done"]
    assert values_of(driver) == {A: 11}


def test_an_update_and_its_append_happen_together_or_not_at_all() -> None:
    driver = ContainerDriver()
    driver.create()
    block = driver.append_if(1, [b"one"], AttributeUpdate(A, "create", 1), expected_length=0)
    driver.append_if(2, [b"two"], AttributeUpdate(A, "create", 2))
    driver.append_if(2, [b"two"], AttributeUpdate(B, "create", 2), expected_length=0)
    assert codes(driver) == ["Done", "Appended", "attribute-mismatch", "offset-mismatch"]
    assert (driver.content(), values_of(driver)) == (block, {A: 1})
    driver.crash()
    assert (driver.content(), values_of(driver)) == (block, {A: 1})


def test_an_answer_about_attributes_waits_for_what_it_depends_on() -> None:
    driver = ContainerDriver()
    driver.create()
    driver.commit()
    driver.take_replies()
    driver.update(1, AttributeUpdate(A, "replace", 7), AttributeUpdate(B, "replace", 8))
    driver.attributes(B, b"c" * 16)
    assert driver.take_replies() == []
    driver.commit()
    assert driver.take_replies() == [Done(), AttributeValues(values=(AttributeValue(B, 8),))]


def test_attributes_end_with_their_segment() -> None:
    driver = ContainerDriver()
    driver.create()
    driver.update(1, AttributeUpdate(A, "replace", 7))
    driver.delete()
    driver.attributes()
    driver.create(stamp=Stamp(2, 1))
    driver.attributes()
    driver.commit()
    replies = driver.take_replies()
    assert getattr(replies[3], "code", "") == "segment-not-found"
    assert replies[5] == AttributeValues(values=())


def test_a_change_that_does_not_follow_its_value_is_damage() -> None:
    with pytest.raises(AnabranchError, match="does not follow"):
        apply_changes({A: 1}, [AttributeChange(A, 2, 3)])
