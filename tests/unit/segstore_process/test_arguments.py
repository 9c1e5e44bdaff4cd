"""What the command line of a segment store adds to its environment."""

from pathlib import Path

import pytest

from anabranch.common.errors import InvalidSetting
from anabranch.segstore.__main__ import settings_of


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANABRANCH_SEGSTORE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ANABRANCH_SEGSTORE_NATS_URL", "nats://127.0.0.1:4222")


def test_without_arguments_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not settings_of([]).take_over
    monkeypatch.setenv("ANABRANCH_SEGSTORE_TAKE_OVER", "true")
    assert settings_of([]).take_over


def test_take_over_skips_the_lock_of_another_process() -> None:
    assert settings_of(["--take-over"]).take_over


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(SystemExit) as refusal:
        settings_of(["--takeover"])
    assert refusal.value.code == 2


@pytest.mark.parametrize("count", ["1", "3"])
def test_the_number_of_replicas_is_read_from_text(
    monkeypatch: pytest.MonkeyPatch, count: str
) -> None:
    monkeypatch.setenv("ANABRANCH_SEGSTORE_LOG_REPLICAS", count)
    assert settings_of([]).log_replicas == int(count)


@pytest.mark.parametrize("count", ["2", "three", ""])
def test_another_number_of_replicas_is_refused(monkeypatch: pytest.MonkeyPatch, count: str) -> None:
    monkeypatch.setenv("ANABRANCH_SEGSTORE_LOG_REPLICAS", count)
    with pytest.raises(InvalidSetting):
        settings_of([])
