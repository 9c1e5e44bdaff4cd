"""What becomes of values on their way into events and back."""

import sys

import pytest
from pydantic import BaseModel

from anabranch.client import (
    ArrowSerializer,
    BytesSerializer,
    JsonSerializer,
    PydanticSerializer,
    TextSerializer,
)
from anabranch.client.serializers import serialized
from anabranch.common.errors import CodecMissing, SerializationFailed
from kit.client_bench import STREAM, bench


class Reading(BaseModel):
    """A sensor's value."""

    sensor: str
    celsius: float


class NotBytes:
    """Breaks the rule that a serializer gives bytes."""

    def serialize(self, value: int) -> bytes:
        return value  # type: ignore[return-value]

    def deserialize(self, data: bytes) -> int:
        return 0


def test_values_come_back_as_they_were() -> None:
    assert BytesSerializer().deserialize(BytesSerializer().serialize(b"\xff")) == b"\xff"
    assert TextSerializer().deserialize(TextSerializer().serialize("grüße")) == "grüße"
    value = {"a": [1, 2.5, None, True], "ü": "x"}
    assert JsonSerializer().deserialize(JsonSerializer().serialize(value)) == value
    reading = Reading(sensor="boiler", celsius=21.5)
    model = PydanticSerializer(Reading)
    assert model.deserialize(model.serialize(reading)) == reading


def test_a_table_of_arrow_comes_back_as_it_was() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"n": [1, 2, 3], "s": ["a", None, "c"]})
    serializer = ArrowSerializer()
    assert serializer.deserialize(serializer.serialize(table)) == table
    (batch,) = table.to_batches()
    assert serializer.deserialize(serializer.serialize(batch)) == table


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (BytesSerializer(), "text"),
        (TextSerializer(), b"bytes"),
        (TextSerializer(), "\ud800"),
        (JsonSerializer(), object()),
        (JsonSerializer(), float("nan")),
        (JsonSerializer(), "\ud800"),
        (PydanticSerializer(Reading), {"sensor": "boiler"}),
        (ArrowSerializer(), [1, 2]),
        (NotBytes(), 7),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_type(
    serializer: object, value: object
) -> None:
    with pytest.raises(SerializationFailed) as caught:
        serialized(serializer, value)  # type: ignore[arg-type]
    assert caught.value.fields["type"] == type(value).__name__


@pytest.mark.parametrize(
    ("serializer", "kind"),
    [
        (TextSerializer(), "str"),
        (JsonSerializer(), "JSON"),
        (PydanticSerializer(Reading), "Reading"),
        (ArrowSerializer(), "Table"),
    ],
)
def test_bytes_that_are_no_value_are_refused_with_what_they_should_have_been(
    serializer: TextSerializer, kind: str
) -> None:
    with pytest.raises(SerializationFailed) as caught:
        serializer.deserialize(b"\xff\xfe\xff")
    assert caught.value.fields["type"] == kind


def test_without_pyarrow_arrows_serializer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.ipc", None)
    with pytest.raises(CodecMissing) as caught:
        ArrowSerializer().serialize(None)
    assert caught.value.fields["package"] == "pyarrow"
    assert caught.value.remedy == "pip install 'anabranch-client[arrow]'"


async def test_a_writer_takes_values_of_its_serializer() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, serializer=PydanticSerializer(Reading)) as writer:
            writer.write(Reading(sensor="a", celsius=1), key="a")
            writer.write_batch([Reading(sensor="b", celsius=2), Reading(sensor="c", celsius=3)])
            await writer.append(Reading(sensor="d", celsius=4))
        read = [PydanticSerializer(Reading).deserialize(data) for data in await b.payloads()]
    assert [reading.sensor for reading in read] == ["a", "b", "c", "d"]


async def test_nothing_is_taken_of_a_value_that_cannot_be_serialized() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, serializer=JsonSerializer()) as writer:
            writer.write("before")
            used = writer.used_bytes
            with pytest.raises(SerializationFailed):
                writer.write(object())
            with pytest.raises(SerializationFailed):
                writer.write_batch(["no", object()])
            with pytest.raises(SerializationFailed):
                await writer.append(object())
            assert writer.used_bytes == used
            writer.write("after")
        assert await b.payloads() == [b'"before"', b'"after"']
