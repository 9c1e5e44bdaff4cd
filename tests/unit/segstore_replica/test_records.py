"""The records of a copy that are not messages: frozen bytes, and damage that is never read."""

import pytest

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.segstore.domain.log.replica.records import (
    decode_link,
    decode_record,
    encode_base,
    encode_first,
    encode_link,
    encode_promise,
)
from anabranch.segstore.domain.log.stream.messages import NOTHING, Kind, Link, Opening, log_seed
from kit.golden import assert_golden

SEED = log_seed("log-1")
LINK = Link(6, 41, 0xCAFEBABE, 999)


def test_the_bytes_of_records_never_change() -> None:
    assert_golden("log_copy_base", encode_base(3, 7, LINK, SEED))
    assert_golden("log_copy_promise", encode_promise(3, 7, SEED))
    assert_golden("log_copy_opening", encode_first(3, 7, LINK, SEED))


def test_records_are_read_as_they_were_written() -> None:
    base = decode_record(encode_base(3, 7, LINK, SEED), SEED, 5)
    assert (base.number, base.message.kind, base.link) == (5, Kind.BASE, LINK)
    assert (base.message.container, base.message.container_epoch) == (3, 7)
    promise = decode_record(encode_promise(3, 8, SEED), SEED, 6)
    assert (promise.message.kind, promise.message.container_epoch) == (Kind.PROMISE, 8)
    opening = decode_record(encode_first(3, 9, LINK, SEED), SEED, 7)
    assert opening.opening == Opening(LINK, 0, bytes(16))


@pytest.mark.parametrize("link", [NOTHING, LINK, Link(2**64 - 1, 2**64 - 1, 2**32 - 1, 2**64 - 1)])
def test_a_link_is_read_as_it_was_written(link: Link) -> None:
    assert decode_link(encode_link(link)) == link


def test_a_link_of_another_size_is_not_read() -> None:
    with pytest.raises(CorruptJournal):
        decode_link(encode_link(LINK)[:-1])


@pytest.mark.parametrize("data", [encode_base(3, 7, LINK, SEED), encode_promise(3, 7, SEED)])
def test_a_flipped_bit_of_a_record_is_found(data: bytes) -> None:
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 4
        with pytest.raises((CorruptJournal, FormatTooNew)):
            decode_record(bytes(damaged), SEED, 1)


def test_a_record_of_another_log_is_not_read() -> None:
    with pytest.raises(CorruptJournal):
        decode_record(encode_promise(3, 7, SEED), log_seed("log-2"), 1)
