"""A container that opens loads what its log is about, and nothing else."""

from collections.abc import Iterator

import pytest

from anabranch.common.errors import CorruptJournal
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.operations import HEADER_SIZE_BYTES
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.container_driver import MERGE_STAMP, SEAL_STAMP
from kit.tiered_driver import TieredDriver

NAMES = [f"scope/stream/{number}.#epoch.0" for number in range(6)]


@pytest.fixture
def driver() -> Iterator[TieredDriver]:
    """Six segments with one block each, all in tier 2; one of them is in memory."""
    driver = TieredDriver(residency=ResidencyLimits(1))
    for name in NAMES:
        driver.create(name)
        driver.append_once(1, [b"x" * 50], segment=name)
    driver.commit()
    driver.flush()
    yield driver
    driver.finish()


def resident(driver: TieredDriver) -> set[str]:
    return set(driver.container.pending.segments)


def test_an_empty_log_loads_nothing(driver: TieredDriver) -> None:
    driver.crash()
    assert resident(driver) == set()
    assert driver.interrupted.found == []


def test_control_operations_and_appends_load_their_segments_alone(
    driver: TieredDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = driver.append_once(2, [b"more"], segment=NAMES[1])
    driver.append_once(2, [b"more"], segment=NAMES[2])
    driver.commit()
    driver.append_once(3, [b"again"], segment=NAMES[2])
    driver.seal(NAMES[3], SEAL_STAMP)
    driver.commit()
    content = driver.read_all(NAMES[1])
    streamed = count_entries_calls(monkeypatch)
    driver.crash()
    assert resident(driver) == set(NAMES[1:4])
    assert streamed == [1]
    assert driver.read_all(NAMES[1]) == content
    assert content.endswith(block)


def count_entries_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    entries = ContainerTierTwo.entries

    def counted(tier_two: ContainerTierTwo):  # type: ignore[no-untyped-def]
        calls.append(1)
        return entries(tier_two)

    monkeypatch.setattr(ContainerTierTwo, "entries", counted)
    return calls


def test_names_of_numbers_are_collected_only_if_the_log_needs_them(
    driver: TieredDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.create("scope/new/0.#epoch.0")
    driver.append_once(1, [b"in the frame that creates it"], segment="scope/new/0.#epoch.0")
    driver.seal(NAMES[0], SEAL_STAMP)
    driver.commit()
    streamed = count_entries_calls(monkeypatch)
    driver.crash()
    assert streamed == []
    assert resident(driver) == {"scope/new/0.#epoch.0", NAMES[0]}


def test_a_merge_in_the_log_loads_its_sources(driver: TieredDriver) -> None:
    for name in NAMES[1:3]:
        driver.seal(name, SEAL_STAMP)
    driver.merge(*NAMES[1:3], target=NAMES[0], stamp=MERGE_STAMP)
    driver.commit()
    content = driver.read_all(NAMES[0])
    driver.crash()
    assert resident(driver) == set(NAMES[:3])
    assert driver.read_all(NAMES[0]) == content


def test_after_the_next_flush_the_bound_holds_again(driver: TieredDriver) -> None:
    for name in NAMES:
        driver.append_once(2, [b"more"], segment=name)
    driver.commit()
    driver.crash()
    assert resident(driver) == set(NAMES)
    driver.flush()
    assert len(resident(driver)) == 1
    known = driver.known(NAMES[0])
    assert isinstance(known, SegmentState)
    assert known.event_count == 2


def test_an_append_to_a_number_that_nobody_knows_is_damage(driver: TieredDriver) -> None:
    driver.append_once(2, [b"more"], segment=NAMES[0])
    driver.commit()
    position = list(driver.frames.payloads)[-1]
    payload = bytearray(driver.frames.payloads[position])
    payload[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + 8] = (999).to_bytes(8, "little")
    driver.frames.payloads[position] = bytes(payload)
    with pytest.raises(CorruptJournal):
        driver.crash()
