"""Who writes the journal: as set, or by how fast the disk syncs."""

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.common.adapters.local_disk import DirectoryLock
from anabranch.segstore.adapters.journal.choice import (
    SLOW_SYNC_MS,
    Wanted,
    choose_commits,
    writer_for,
)
from anabranch.segstore.adapters.journal.commits import InlineCommits
from anabranch.segstore.adapters.journal.journal import FILE_SIZE_BYTES_DEFAULT
from anabranch.segstore.adapters.journal.local import SyncProbe, probe_sync
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.wiring import throttle_limits
from kit.container_driver import ManualTime
from kit.simdisk import SimDisk

FAST = SyncProbe(p10_ms=0.2, p50_ms=4.0, p99_ms=50.0)
"""As a fast disk appears while other programs start."""
SLOW = SyncProbe(p10_ms=SLOW_SYNC_MS * 1.1, p50_ms=4.0, p99_ms=50.0)


@pytest.mark.parametrize(
    ("wanted", "probe", "chosen"),
    [
        ("auto", FAST, "inline"),
        ("auto", SLOW, "process"),
        ("inline", SLOW, "inline"),
        ("process", FAST, "process"),
    ],
)
def test_the_setting_counts_and_auto_goes_by_the_fast_syncs(
    wanted: Wanted, probe: SyncProbe, chosen: str
) -> None:
    assert writer_for(wanted, probe) == chosen


class SlowTime(ManualTime):
    """Each look at the clock takes `look_s`, and each sync two looks."""

    def __init__(self, look_s: float = 0.003) -> None:
        super().__init__()
        self.look_s = look_s

    def monotonic(self) -> float:
        self.seconds += self.look_s
        return self.seconds


@pytest.mark.parametrize(
    ("sync_ms", "measured"), [(0.2, 100), (0.9, 100), (4.0, 25), (9.0, 12), (50.0, 11)]
)
def test_a_store_waits_a_tenth_of_a_second_for_the_measurement_of_a_slow_disk(
    sync_ms: float, measured: int
) -> None:
    time = SlowTime(sync_ms / 2 / 1000)
    probe = probe_sync(SimDisk(), time)
    assert probe.p50_ms == pytest.approx(sync_ms / 2)
    assert time.seconds * 1000 == pytest.approx(sync_ms * (measured + 1), abs=sync_ms)


def test_a_disk_that_is_slow_is_told_of_and_what_was_chosen_is_logged() -> None:
    loop = asyncio.new_event_loop()
    choose = choose_commits("inline", SlowTime(), loop)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("info"))
    with capture_logs() as logs:
        assert isinstance(choose(SimDisk(), DirectoryLock(None)), InlineCommits)
    loop.close()
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
    assert logs[1]["writer"] == "inline"


def test_the_journals_limit_is_the_untiered_one_but_never_below_four_files() -> None:
    def limit(untiered: int) -> int:
        settings = SegstoreSettings.model_validate(
            {"data_dir": "/d", "nats_url": "nats://x", "untiered_bytes_max": untiered}
        )
        return throttle_limits(settings).journal

    assert limit(1 << 30) == 1 << 30
    assert limit(1 << 20) == 4 * FILE_SIZE_BYTES_DEFAULT
