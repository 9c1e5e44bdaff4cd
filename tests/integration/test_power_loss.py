"""A slice of `make powerloss`: one loss of power, and a disk that forgets what is not synced."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.common.adapters.local_disk import write_durably
from kit.powerloss.disk import powered_disk, why_not, why_not_here

ROUND_S_MAX = 150
SEED = 4
"""Cuts the power 1.7 s after the cluster is ready."""


@pytest.fixture
def able() -> None:
    missing = why_not_here() or why_not()
    if missing is not None:
        pytest.skip(f"no power was cut: {missing}")


@pytest.mark.usefixtures("able")
def test_what_was_not_synced_is_gone_and_what_was_written_durably_is_there(tmp_path: Path) -> None:
    with powered_disk(tmp_path, size_bytes=16 << 20) as disk:
        (disk.root / "not synced").write_text("lost")
        write_durably(disk.root / "durable", b"old")
        (disk.root / "late").write_text("lost")
        write_durably(disk.root / "durable", b"new")
        (disk.root / "later").write_text("lost")
        disk.cut()
        disk.come_back()

        found = {path.name: path.read_text() for path in disk.root.iterdir() if path.is_file()}

    assert found.pop("durable") == "new"
    assert "lost" not in found.values()


@pytest.mark.usefixtures("able")
def test_a_cluster_that_loses_its_power_has_everything_that_it_acknowledged() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kit.powerloss", "--rounds", "1", "--seed", str(SEED)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=ROUND_S_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "after ready; acknowledged" in done.stdout
    assert "everything acknowledged was there again" in done.stdout
