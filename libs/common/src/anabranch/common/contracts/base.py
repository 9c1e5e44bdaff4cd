"""The base of messages on NATS: frozen models with a tag and a schema number."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from anabranch.common.errors import AnabranchError, FieldValue, from_body


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
