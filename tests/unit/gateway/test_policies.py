"""Configurations as Pravega writes them: what is kept, what is answered, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
)
from anabranch.gateway.http.models.policies import ConfigBody, retention_body, scaling_body

DAY_MS = 86_400_000
MIB = 1024 * 1024
FIXED = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}


def parsed(retention: object) -> RetentionPolicy | None:
    body = {"scalingPolicy": FIXED, "retentionPolicy": retention}
    return ConfigBody.model_validate(body).config().retention


def told(policy: RetentionPolicy) -> dict[str, object]:
    return retention_body(policy).model_dump(by_alias=True, exclude_none=True)


@pytest.mark.parametrize(
    ("body", "kind", "minimum", "maximum"),
    [
        ({"type": "LIMITED_DAYS", "value": 3}, "time_ms", 3 * DAY_MS, None),
        ({"type": "LIMITED_DAYS", "value": 3, "maxValue": 4}, "time_ms", 3 * DAY_MS, 4 * DAY_MS),
        (
            {"type": "LIMITED_DAYS", "timeBasedRetention": {"days": 1, "hours": 2, "minutes": 3}},
            "time_ms", DAY_MS + 7_380_000, None,
        ),
        (
            {"type": "LIMITED_DAYS", "value": 1,
             "timeBasedRetention": {"days": 1, "hours": 0, "minutes": 0},
             "maxTimeBasedRetention": {"hours": 25}},
            "time_ms", DAY_MS, 25 * 3_600_000,
        ),
        (
            {"type": "LIMITED_DAYS", "value": 2, "timeBasedRetention": {"days": 0}},
            "time_ms", 2 * DAY_MS, None,
        ),
        ({"type": "LIMITED_SIZE_MB", "value": 5}, "size_bytes", 5 * MIB, None),
        ({"type": "LIMITED_SIZE_MB", "value": 5, "maxValue": 0}, "size_bytes", 5 * MIB, None),
        ({"type": "LIMITED_SIZE_MB", "value": 5, "maxValue": 6}, "size_bytes", 5 * MIB, 6 * MIB),
        ({"type": "LIMITED_SIZE_MB", "sizeBytes": 7}, "size_bytes", 7, None),
    ],
)  # fmt: skip
def test_retention_is_kept_as_pravega_means_it(
    body: dict[str, object], kind: str, minimum: int, maximum: int | None
) -> None:
    assert parsed(body) == RetentionPolicy(RetentionType(kind), minimum, maximum)


def test_whole_days_are_told_as_days_and_everything_else_by_its_parts() -> None:
    whole = told(RetentionPolicy(RetentionType.TIME_MS, 2 * DAY_MS, 3 * DAY_MS))
    assert whole == {
        "type": "LIMITED_DAYS",
        "value": 2,
        "timeBasedRetention": {"days": 2, "hours": 0, "minutes": 0},
        "maxValue": 3,
        "maxTimeBasedRetention": {"days": 3, "hours": 0, "minutes": 0},
    }
    parts = told(RetentionPolicy(RetentionType.TIME_MS, DAY_MS + 3_600_000 + 60_000))
    assert parts["value"] == 0
    assert parts["timeBasedRetention"] == {"days": 1, "hours": 1, "minutes": 1}
    assert told(RetentionPolicy(RetentionType.SIZE_BYTES, 2 * MIB)) == {
        "type": "LIMITED_SIZE_MB",
        "value": 2,
    }


amounts = st.integers(1, 2**62)


@given(
    kind=st.sampled_from(RetentionType),
    least=st.one_of(amounts, amounts.map(lambda n: n // DAY_MS * DAY_MS or DAY_MS)),
    beyond=st.one_of(st.none(), st.integers(0, 2**60)),
)
def test_whatever_retention_is_answered_can_be_sent_back_and_means_the_same(
    kind: RetentionType, least: int, beyond: int | None
) -> None:
    policy = RetentionPolicy(kind, least, None if beyond is None else least + beyond)
    assert parsed(told(policy)) == policy


@given(
    kind=st.sampled_from(ScalingType),
    rate=st.integers(1, 2**62),
    factor=st.integers(2, 1000),
    count=st.integers(1, 1000),
)
def test_whatever_scaling_is_answered_can_be_sent_back_and_means_the_same(
    kind: ScalingType, rate: int, factor: int, count: int
) -> None:
    is_fixed = kind is ScalingType.FIXED
    policy = ScalingPolicy(kind, 0 if is_fixed else rate, 0 if is_fixed else factor, count)
    body = {"scalingPolicy": scaling_body(policy).model_dump(by_alias=True), "streamTags": ["t"]}
    assert ConfigBody.model_validate(body).config() == StreamConfig(policy, tags=("t",))


@pytest.mark.parametrize(
    "body",
    [
        {"type": None},
        {},
        {"type": "FOREVER", "value": 1},
        {"type": "LIMITED_DAYS"},
        {"type": "LIMITED_DAYS", "value": -1},
        {"type": "LIMITED_DAYS", "value": 2**62},
        {"type": "LIMITED_DAYS", "value": 1.5},
        {"type": "LIMITED_DAYS", "value": 3, "maxValue": 2},
        {"type": "LIMITED_DAYS", "value": 3, "timeBasedRetention": {"days": 2}},
        {"type": "LIMITED_DAYS", "value": 3, "sizeBytes": 5},
        {"type": "LIMITED_DAYS", "timeBasedRetention": {"weeks": 2}},
        {"type": "LIMITED_SIZE_MB", "value": 3, "timeBasedRetention": {"days": 3}},
        {"type": "LIMITED_SIZE_MB", "value": 3, "sizeBytes": 5},
        {"type": "LIMITED_SIZE_MB", "value": 3, "maxSizeBytes": 5},
    ],
)
def test_nonsense_about_retention_is_refused(body: dict[str, object]) -> None:
    with pytest.raises((InvalidRequest, ValidationError)):
        parsed(body)
