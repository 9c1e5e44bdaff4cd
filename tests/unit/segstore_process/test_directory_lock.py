"""A store whose logs are elsewhere has its data directory, and with it its node id, for itself."""

from pathlib import Path

import pytest

from anabranch.common.errors import DirectoryInUse
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.wiring.log import locked_directory


def _settings(data_dir: Path, **more: object) -> SegstoreSettings:
    given = {"data_dir": str(data_dir), "nats_url": "nats://127.0.0.1:4222", **more}
    return SegstoreSettings.model_validate(given)


@pytest.mark.parametrize("journal", ["jetstream", "replicated"])
def test_a_second_process_is_refused_until_the_first_one_has_ended(
    tmp_path: Path, journal: str
) -> None:
    settings = _settings(tmp_path, journal=journal)
    with locked_directory(settings) as former_may_run:
        assert not former_may_run
        with pytest.raises(DirectoryInUse), locked_directory(settings):
            pass
    with locked_directory(settings) as former_may_run:
        assert not former_may_run


def test_a_store_that_takes_over_knows_whether_another_process_may_serve(tmp_path: Path) -> None:
    taking_over = _settings(tmp_path, journal="jetstream", take_over=True)
    former = locked_directory(_settings(tmp_path, journal="jetstream"))
    with former, locked_directory(taking_over) as former_may_run:
        assert former_may_run
    with locked_directory(taking_over) as former_may_run:
        assert not former_may_run


def test_a_journal_has_a_lock_of_its_own(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    with locked_directory(settings), locked_directory(settings):
        assert list(tmp_path.iterdir()) == []
