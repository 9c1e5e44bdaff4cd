"""The settings of auto-scaling: a profile, and what differs from it."""

import pytest

from anabranch.common.errors import InvalidSetting
from anabranch.controller.domain.policies.profile import CLASSIC, FAST, HotRule
from anabranch.controller.settings import Settings

PREFIX = "ANABRANCH_CONTROLLER_SCALING"


def profile(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(PREFIX + name, value)
    return Settings.from_environment()


def test_the_fast_profile_is_the_default_and_both_can_be_chosen_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings().scaling_profile == FAST
    assert Settings(scaling="classic").scaling_profile == CLASSIC
    assert profile(monkeypatch, **{"": "off"}).scaling_profile is None


def test_single_timings_and_thresholds_are_changed_one_by_one_or_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = profile(
        monkeypatch,
        _OPTIONS__COLD_S="300",
        _OPTIONS__HOT="[[1, 3.0], [4, 1.5]]",
    ).scaling_profile
    assert found is not None
    assert (found.cold_s, found.hot) == (300.0, (HotRule(1, 3.0), HotRule(4, 1.5)))
    assert found.cooldown_s == FAST.cooldown_s


@pytest.mark.parametrize(
    "options", ['{"cold_s": 1}', '{"merge_factor": 1.5}', '{"cold": 3}', '{"hot": [[5, 0.2]]}']
)
@pytest.mark.parametrize("name", ["fast", "off"])
def test_options_that_make_no_profile_are_refused_at_the_start(
    options: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSetting):
        profile(monkeypatch, **{"": name, "_OPTIONS": options})
