"""The place of an aggregate, as commands and queries name it: a scope, or a part of a scope. Pure.

`PARTS` has one row for each kind of aggregate that lives in a scope; a new kind is a field of
`Place` and a row.
"""

from typing import Any, NamedTuple

from anabranch.common.contracts.base import Contract


class Part(NamedTuple):
    """A kind of thing in a scope.

    `field`: its name in `Place`, commands and queries. `word`: its token in subjects. `mark`: the
    prefix of names in membership records. `word` and `mark` are stored, so they never change.
    `noun`: its name for people.
    """

    field: str
    word: str
    mark: str
    noun: str


class Place(NamedTuple):
    """The place of an aggregate. Without a part it is the scope; `transaction` is the stream's."""

    scope: str
    stream: str | None = None
    group: str | None = None
    transaction: str | None = None
    table: str | None = None

    def __str__(self) -> str:
        name = self.part_name
        return self.scope if name is None else f"{self.scope}/{name}"

    @property
    def part(self) -> Part | None:
        """The kind of the part; None: the place is the scope itself."""
        return next((part for part in PARTS if getattr(self, part.field) is not None), None)

    @property
    def part_name(self) -> str | None:
        """The name of the part within the scope; None: the place is the scope itself."""
        return None if self.part is None else str(getattr(self, self.part.field))

    @property
    def name(self) -> str:
        """A name that is unique among aggregates, by which work is sorted and found."""
        mark = "" if self.part is None else self.part.mark
        return f"{self}{mark}" if self.transaction is None else f"{self}/{self.transaction}"

    @property
    def text(self) -> str:
        """The place as text for people."""
        if self.transaction is not None:
            return f"{self} (transaction {self.transaction})"
        return (
            f"{self} ({self.part.noun})" if self.part is not None and self.part.mark else str(self)
        )


class Placed(Contract):
    """A message about an aggregate, with the fields of `Place`."""

    scope: str = ""
    """The name of the aggregate, or of the scope that contains its stream, group or table."""
    stream: str | None = None
    """The name of the stream. None: the aggregate is no stream."""
    group: str | None = None
    """The name of the reader group. None: the aggregate is no group."""
    table: str | None = None
    """The name of the key-value table. None: the aggregate is no table."""


STREAM = Part("stream", "stream", "", "stream")
PARTS = (
    STREAM,
    Part("group", "rg", "+", "reader group"),
    Part("table", "kvt", "~", "key-value table"),
)


def place_in(scope: str, part: Part, name: str) -> Place:
    """The place of a part of a scope."""
    return Place(scope)._replace(**{part.field: name})


def place_of(told: object) -> Place:
    """The place that a message names in fields of the same names."""
    fields: dict[str, Any] = {name: getattr(told, name, None) for name in Place._fields}
    return Place(**fields)
