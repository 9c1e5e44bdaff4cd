"""A store keeps its node id, and takes no other one where logs are placed on the lost one."""

from pathlib import Path

import pytest

from anabranch.common.errors import InvalidSetting, NodeIdMissing
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.wiring.log import NODE_ID_FILE, kept_node_id
from kit.fixed_catalog import run_at_once


def test_a_node_id_is_drawn_once_and_kept(tmp_path: Path) -> None:
    log = MemoryLog(MemoryFrames("a-journal"), lambda _: None)
    first = kept_node_id(tmp_path, SeededIds(1), log)
    run_at_once(log.create_log(0, "log"))
    assert kept_node_id(tmp_path, SeededIds(2), log) == first


def test_a_lost_node_id_is_refused_where_the_journal_holds_logs(tmp_path: Path) -> None:
    log = MemoryLog(MemoryFrames("a-journal"), lambda _: None)
    kept_node_id(tmp_path, SeededIds(1), log)
    run_at_once(log.create_log(0, "log"))
    (tmp_path / NODE_ID_FILE).unlink()
    with pytest.raises(NodeIdMissing) as refused:
        kept_node_id(tmp_path, SeededIds(2), log)
    assert refused.value.fields["journal"] == "a-journal"
    assert "node-id" in refused.value.remedy
    assert not (tmp_path / NODE_ID_FILE).exists()


def test_a_new_directory_takes_the_node_id_that_is_set_and_refuses_another_one(
    tmp_path: Path,
) -> None:
    log = MemoryLog(MemoryFrames("a-journal"), lambda _: None)
    assert kept_node_id(tmp_path, SeededIds(1), log, wanted="main-0") == "main-0"
    assert kept_node_id(tmp_path, SeededIds(1), log) == "main-0"
    with pytest.raises(InvalidSetting) as refused:
        kept_node_id(tmp_path, SeededIds(1), log, wanted="main-1")
    assert refused.value.fields["found"] == "main-0"
