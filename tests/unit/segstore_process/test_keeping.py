"""Whether a store keeps all or nothing; half of it is refused before anything is touched."""

from pathlib import Path

import pytest

from anabranch.common.errors import InvalidSetting
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.wiring import check_settings
from anabranch.segstore.wiring.log import check_kind


def _settings(data_dir: Path, **more: str) -> SegstoreSettings:
    given = {"data_dir": str(data_dir), "nats_url": "nats://127.0.0.1:4222", **more}
    return SegstoreSettings.model_validate(given)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tier2_url": "s3://bucket/prefix"},
        {"journal": "memory", "tier2_url": "memory:"},
        {"journal": "memory", "tier2_url": "memory://"},
    ],
)
def test_journal_and_tier_2_are_both_kept_or_neither_is(
    tmp_path: Path, more: dict[str, str]
) -> None:
    check_settings(_settings(tmp_path, **more))


@pytest.mark.parametrize(
    "more",
    [
        {"tier2_url": "memory:"},
        {"journal": "memory"},
        {"journal": "memory", "tier2_url": "s3://bucket"},
    ],
)
def test_one_without_the_other_is_refused(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match="both"):
        check_settings(_settings(tmp_path, **more))


def test_a_store_in_memory_is_refused_where_a_journal_is(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(InvalidSetting, match="holds a journal"):
        check_settings(_settings(tmp_path, journal="memory", tier2_url="memory:"))


@pytest.mark.parametrize("journal", ["jetstream", "replicated"])
def test_a_log_that_outlives_the_machine_refuses_a_tier_2_that_does_not(
    tmp_path: Path, journal: str
) -> None:
    with pytest.raises(InvalidSetting, match="outlive") as refused:
        check_settings(_settings(tmp_path, journal=journal))
    assert "ANABRANCH_SEGSTORE_TIER2_LOSS=accepted" in refused.value.remedy
    check_settings(_settings(tmp_path, journal=journal, tier2_loss="accepted"))
    check_settings(_settings(tmp_path, journal=journal, tier2_url="s3://bucket"))


def test_a_store_that_listens_everywhere_must_announce_an_address_to_other_stores(
    tmp_path: Path,
) -> None:
    replicated = {"journal": "replicated", "tier2_loss": "accepted", "peer_bind": "0.0.0.0:9401"}
    with pytest.raises(InvalidSetting, match="listens on all") as refused:
        check_settings(_settings(tmp_path, **replicated))
    assert "ANABRANCH_SEGSTORE_PEER_ADVERTISE" in refused.value.remedy
    check_settings(_settings(tmp_path, **replicated, peer_advertise="store-1:9401"))


def test_a_url_with_a_secret_is_refused_before_settings_are_logged(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_settings(_settings(tmp_path, tier2_url="s3://bucket?secret_access_key=hush"))
    assert "hush" not in str(refused.value.to_body())


def test_the_options_of_an_object_store_are_set_one_by_one_or_as_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANABRANCH_SEGSTORE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ANABRANCH_SEGSTORE_NATS_URL", "nats://127.0.0.1:4222")
    monkeypatch.setenv("ANABRANCH_SEGSTORE_TIER2_OPTIONS__ENDPOINT", "https://store.example")
    assert SegstoreSettings.from_environment().tier2_options.endpoint == "https://store.example"
    monkeypatch.delenv("ANABRANCH_SEGSTORE_TIER2_OPTIONS__ENDPOINT")
    monkeypatch.setenv("ANABRANCH_SEGSTORE_TIER2_OPTIONS", '{"allow_http": true}')
    assert SegstoreSettings.from_environment().tier2_options.allow_http
    monkeypatch.setenv("ANABRANCH_SEGSTORE_TIER2_OPTIONS", '{"secret": "hush"}')
    with pytest.raises(InvalidSetting) as refused:
        SegstoreSettings.from_environment()
    assert "hush" not in str(refused.value.to_body())


@pytest.mark.parametrize(("journal", "name"), [("disk", "a-log.a-copy"), ("replicated", "a-log")])
def test_a_journal_with_logs_of_another_kind_is_refused(
    tmp_path: Path, journal: str, name: str
) -> None:
    settings = _settings(tmp_path, journal=journal)
    with pytest.raises(InvalidSetting, match="another kind"):
        check_kind({3: name}, settings)
    check_kind({}, settings)
    other = "replicated" if journal == "disk" else "disk"
    check_kind({3: name}, _settings(tmp_path, journal=other))
