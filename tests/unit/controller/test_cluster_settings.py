"""The settings of the cluster: the silence that means death, and the join token."""

from pathlib import Path

import pytest

from anabranch.common.errors import InvalidSetting
from anabranch.controller.settings import Settings

PREFIX = "ANABRANCH_CONTROLLER_"


def test_a_silence_below_two_beats_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().member_dead_s == 3.0
    monkeypatch.setenv(f"{PREFIX}MEMBER_DEAD_S", "1.5")
    assert Settings.from_environment().member_dead_s == 1.5
    monkeypatch.setenv(f"{PREFIX}MEMBER_DEAD_S", "1.4")
    with pytest.raises(InvalidSetting):
        Settings.from_environment()


def test_the_join_token_is_a_file_and_an_empty_name_means_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(f"{PREFIX}JOIN_TOKEN_FILE", "")
    assert Settings.from_environment().join_token_file is None
    token = tmp_path / "token"
    monkeypatch.setenv(f"{PREFIX}JOIN_TOKEN_FILE", str(token))
    settings = Settings.from_environment()
    assert settings.join_token_file == token
    assert settings.describe()["join_token_file"] == str(token), "the name, never the content"
