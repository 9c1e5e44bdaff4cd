"""No bytes from outside do more than be refused by name. `make fuzz-decoders` tries many more."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit import fuzz_targets
from kit.fuzz_decoders import Undecided, fuzz
from kit.fuzz_targets import TARGETS, Target
from kit.thorough import one_in

INPUTS = 12_000 // one_in(4)
by_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@by_target
def test_damaged_bytes_are_refused_by_name(target: Target) -> None:
    tally = fuzz(target, INPUTS, seed=1)
    assert tally.refused > INPUTS // 10
    assert tally.believed > INPUTS // 100


@by_target
@settings(max_examples=100 // one_in(4))
@given(st.binary(max_size=600))
def test_any_bytes_are_refused_by_name(target: Target, data: bytes) -> None:
    for each in (data, target.seal(data) if target.seal else data):
        try:
            target.decode(each)
        except target.errors:
            continue


def test_a_decoder_that_raises_something_else_is_found() -> None:
    def careless(data: bytes) -> list[str]:
        return [str(struct.unpack_from("<I", data))]

    target = Target("careless", [bytes(8)], careless, (ValueError,), guarded=False)  # type: ignore[arg-type]
    with pytest.raises(Undecided, match="careless: seed 1"):
        fuzz(target, 1000, seed=1)


def test_a_decoder_that_takes_what_a_length_says_is_found() -> None:
    def greedy(data: bytes) -> list[str]:
        return [str(len(bytes(int.from_bytes(data[:4].ljust(4, b"\0"), "little"))))]

    target = Target("greedy", [bytes(8)], greedy, (), guarded=False)
    with pytest.raises(Undecided) as found:
        fuzz(target, 5000, seed=1)
    assert isinstance(found.value.__cause__, MemoryError)


def test_a_decoder_that_believes_wrong_bytes_is_found() -> None:
    (blocks,) = (target for target in TARGETS if target.name == "blocks")
    credulous = replace(blocks, decode=lambda data: [data.hex()], seal=None)
    with pytest.raises(Undecided):
        fuzz(credulous, 1000, seed=1)


def test_a_store_that_accepts_what_readers_refuse_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (door,) = (target for target in TARGETS if target.name == "blocks at the door")
    monkeypatch.setattr(fuzz_targets, "check_contents", lambda _header, _block: None)
    with pytest.raises(Undecided) as found:
        fuzz(door, 5000, seed=1)
    assert "readers refuse" in str(found.value.__cause__)
