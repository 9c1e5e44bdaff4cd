"""The base of messages on NATS: frozen models with a tag and a schema number."""

from binascii import a2b_base64, b2a_base64
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from anabranch.common.errors import AnabranchError, FieldValue, from_body


def _decoded(value: Any) -> Any:
    return a2b_base64(value, strict_mode=True) if isinstance(value, str) else value


def _encoded(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


Base64 = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(_encoded, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
"""Bytes, which are base64 in JSON."""


class Contract(BaseModel):
    """The base of messages. A message is immutable and ignores fields that newer peers add."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore")


class ErrorBody(Contract):
    """An `AnabranchError` as data."""

    code: str
    message: str
    remedy: str = ""
    fields: dict[str, FieldValue] = {}

    @classmethod
    def of(cls, error: AnabranchError) -> "ErrorBody":
        return cls.model_validate(error.to_body())

    def to_error(self) -> AnabranchError:
        return from_body(self.model_dump())


class ReadToken(Contract):
    """A point in a shard's events: 'everything up to and including this sequence'."""

    shard: int
    sequence: int
