"""Serializers: values to the bytes of events, and back.

A writer and a reader take one each. Without a serializer, a writer takes bytes and text and a
reader returns bytes. A serializer is pure and may be shared. If a value cannot be serialized, the
writer takes nothing of the call; if an event cannot be deserialized, the reader raises
SerializationFailed once and continues after the event.

Routing keys and times are not part of a value: `write` takes them as parameters.
"""

import json
from importlib import import_module
from typing import Any, Generic, Protocol

from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from anabranch.common.errors import CodecMissing, SerializationFailed

CAUSE_LENGTH_MAX = 200

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


class Serializer(Protocol[T]):
    """Both directions for values of one type; both raise SerializationFailed. Write your own as a
    class with these two methods::

        class HexSerializer:
            def serialize(self, value): return value.hex().encode()
            def deserialize(self, data): return bytes.fromhex(data.decode())
    """

    def serialize(self, value: T) -> bytes: ...

    def deserialize(self, data: bytes) -> T: ...


class BytesSerializer:
    """Bytes, unchanged.

    ::

        async with client.writer("plant/raw", serializer=BytesSerializer()) as writer:
            writer.write(b"21.5")
    """

    def serialize(self, value: bytes) -> bytes:
        """Copies a bytearray or memoryview. Raises SerializationFailed."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _failed("the value is not bytes", value)
        return bytes(value)

    def deserialize(self, data: bytes) -> bytes:
        """The same bytes."""
        return data


class TextSerializer:
    """Text in UTF-8.

    ::

        async with client.reader("plant/notes", serializer=TextSerializer()) as reader:
            async for event in reader:
                print(event.payload.upper())
    """

    def serialize(self, value: str) -> bytes:
        """Raises SerializationFailed for other types and for invalid Unicode."""
        if not isinstance(value, str):
            raise _failed("a value is not text", value)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise _failed("a text is not valid Unicode", value, error) from error

    def deserialize(self, data: bytes) -> str:
        """Raises SerializationFailed."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _refused("an event is not UTF-8 text", "str", error) from error


class JsonSerializer:
    """JSON values, in UTF-8 without spaces. JSON has no NaN, so NaN raises SerializationFailed.

    ::

        async with client.writer("plant/sensors", serializer=JsonSerializer()) as writer:
            writer.write({"celsius": 21.5}, key="boiler")
    """

    def serialize(self, value: Any) -> bytes:
        """Raises SerializationFailed."""
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise _failed("a value cannot be written as JSON", value, error) from error

    def deserialize(self, data: bytes) -> Any:
        """Raises SerializationFailed."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _refused("an event is not JSON", "JSON", error) from error


class PydanticSerializer(Generic[Model]):
    """Objects of one pydantic model, as JSON; deserializing validates them.

    ::

        readings = PydanticSerializer(Reading)
        async with client.writer("plant/sensors", serializer=readings) as writer:
            writer.write(Reading(celsius=21.5), key="boiler")
    """

    def __init__(self, model: type[Model]) -> None:
        self.model = model

    def serialize(self, value: Model) -> bytes:
        """Raises SerializationFailed, also for objects of another model."""
        if not isinstance(value, self.model):
            raise _failed(f"a value is no {self.model.__name__}", value)
        try:
            return value.model_dump_json().encode()
        except (ValueError, TypeError) as error:
            raise _failed("a value cannot be written as JSON", value, error) from error

    def deserialize(self, data: bytes) -> Model:
        """Raises SerializationFailed."""
        try:
            return self.model.model_validate_json(data)
        except ValidationError as error:
            kind = self.model.__name__
            raise _refused("an event does not fit the model", kind, error) from error


class ArrowSerializer:
    """Arrow tables; each table is one event in Arrow's stream format.

    Serializes a RecordBatch too; deserializing returns a Table. Needs pyarrow. To write each row as
    an event, use `EventWriter.write_arrow`.

    ::

        async with client.writer("plant/tables", serializer=ArrowSerializer()) as writer:
            writer.write(table)
    """

    def serialize(self, value: Any) -> bytes:
        """Raises SerializationFailed, CodecMissing."""
        arrow = require_pyarrow()
        if not isinstance(value, arrow.Table | arrow.RecordBatch):
            raise _failed("the value is neither a Table nor a RecordBatch", value)
        sink = arrow.BufferOutputStream()
        try:
            with arrow.ipc.new_stream(sink, value.schema) as writer:
                writer.write(value)
        except arrow.ArrowException as error:
            raise _failed("the table cannot be serialized", value, error) from error
        return bytes(sink.getvalue())

    def deserialize(self, data: bytes) -> Any:
        """Returns a Table. Raises SerializationFailed, CodecMissing."""
        arrow = require_pyarrow()
        try:
            with arrow.ipc.open_stream(data) as reader:
                return reader.read_all()
        except (arrow.ArrowException, OSError) as error:
            raise _refused("the event is not an Arrow table", "Table", error) from error


def require_pyarrow() -> Any:
    """The module `pyarrow`, imported on first use. Raises CodecMissing."""
    try:
        import_module("pyarrow.ipc")
        return import_module("pyarrow")
    except ImportError as error:
        raise CodecMissing(
            "Arrow data requires a package that is not installed",
            remedy="pip install 'anabranch-client[arrow]'",
            package="pyarrow",
        ) from error


def serialized(serializer: Serializer[T], value: T) -> bytes:
    """The value's bytes. Raises SerializationFailed, also if they are of another type."""
    data = serializer.serialize(value)
    if type(data) is not bytes:
        raise _failed(f"a serializer gave {type(data).__name__} instead of bytes", value)
    return data


def _failed(what: str, value: object, cause: Exception | None = None) -> SerializationFailed:
    return _refused(what, type(value).__name__, cause)


def _refused(what: str, kind: str, cause: Exception | None) -> SerializationFailed:
    """`kind`: the type to serialize, or to deserialize to."""
    if cause is None:
        return SerializationFailed(what, type=kind)
    return SerializationFailed(what, type=kind, cause=str(cause)[:CAUSE_LENGTH_MAX])
