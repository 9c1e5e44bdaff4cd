"""The common form of bodies and answers, and their common field types.

Names over HTTP are in camel case, as in Pravega. An answer takes the fields of a contract by their
names; a body may contain no unknown field.
"""

import re
from functools import lru_cache
from typing import Annotated, ClassVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from anabranch.common.model.names import StreamRef, scope_name, stream_name
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.common.model.table import TableRef, table_ref

PAGE_SIZE = 100
PAGE_SIZE_MAX = 1000
NAMES_KEPT = 1024
"""The names of streams that are remembered as valid."""
INT63 = (1 << 63) - 1
_SURROGATE = re.compile("[\ud800-\udfff]")

NextPageToken = Annotated[str, Field(alias="next_page_token")]
"""Empty on the last page."""
PageToken = Annotated[str, Query(description="next_page_token of the last answer")]
PageSize = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX)]
SegmentPath = Annotated[int, Path(ge=0, le=INT63, description="a segment's id")]
TimeMs = Annotated[int, Query(ge=0, le=INT63, description="Unix time in milliseconds")]
TimeText = Annotated[
    str, Query(max_length=64, description="a time such as 2026-11-20T12:00 (UTC), or Unix ms")
]
EpochNumber = Annotated[int, Query(ge=0, le=INT63, description="a stream epoch")]

Offset = Annotated[int, Field(ge=-1, le=INT63)]
StreamCutBody = Annotated[
    dict[Annotated[int, Field(ge=0, le=INT63)], Offset],
    Field(min_length=1, max_length=SEGMENT_COUNT_MAX, examples=[{"0": 0}]),
]
"""Segment id → byte offset."""


class HttpBody(BaseModel):
    """Bodies that callers send; unknown fields are refused."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_surrogates(cls, body: object) -> object:
        """JSON can contain half of a surrogate pair, which is no character and has no UTF-8."""
        if not is_text(body):
            raise ValueError("the text contains half of a surrogate pair")
        return body


def is_text(value: object) -> bool:
    """Whether all strings in a JSON value can be encoded as UTF-8."""
    match value:
        case str():
            return not _SURROGATE.search(value)
        case dict():
            return all(is_text(key) and is_text(item) for key, item in value.items())
        case list():
            return all(map(is_text, value))
        case _:
            return True


class Told(BaseModel):
    """An answer; `model_validate` takes a message that has fields of the same names."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, alias_generator=to_camel, from_attributes=True, validate_by_name=True
    )


@lru_cache(NAMES_KEPT)
def stream_at(scope: str, stream: str) -> StreamRef:
    """The stream that a path names. Raises InvalidName."""
    return StreamRef(scope_name(scope), stream_name(stream))


def group_at(scope: str, group: str) -> GroupRef:
    """The reader group that a path names; the rules for stream names apply. Raises InvalidName."""
    return GroupRef(scope_name(scope), stream_name(group))


def table_at(scope: str, table: str) -> TableRef:
    """The key-value table that a path names. Raises InvalidName, InvalidRequest."""
    return table_ref(f"{scope_name(scope)}/{table}")
