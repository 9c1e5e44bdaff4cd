"""A watch's place in a table: one place per partition, and the token of all of them.

    scanning      from the table key after `scanned`; then following
    following     from entry number `entry_index` of the block at `offset`

A position names the table and its incarnation, so that a token of another table, or of an earlier
life of the same name, is refused and not misread.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from anabranch.client.reading.position_tokens import decoded, encoded
from anabranch.common.errors import InvalidRequest


class Place(NamedTuple):
    """A place in a partition, see the module. `scanned`: the last table key of the snapshot that
    was yielded, ``b""`` before the first one; None: the snapshot is complete."""

    offset: int
    entry_index: int = 0
    scanned: bytes | None = None


class _Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="table-position"):
    table: str
    incarnation: int
    at: dict[int, tuple[int, int, bytes | None]]


class TablePosition:
    """The place after a change: a watch that starts there continues with the very next one.

    ::

        token = str(change.position)
        async for change in table.watch(TablePosition.parse(token)):
            print(change.key)
    """

    __slots__ = ("_base", "_moved", "incarnation", "table")

    def __init__(
        self,
        table: str,
        incarnation: int,
        base: Mapping[int, Place],
        moved: tuple[int, Place] | None = None,
    ) -> None:
        """`base` has the place of every partition by its segment id, and must not change; `moved`
        takes precedence over it."""
        self.table = table
        self.incarnation = incarnation
        self._base = base
        self._moved = moved

    @property
    def places(self) -> dict[int, Place]:
        """The place in each partition, by its segment id."""
        places = dict(self._base)
        if self._moved is not None:
            places[self._moved[0]] = self._moved[1]
        return places

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TablePosition) and self._all() == other._all()

    def __hash__(self) -> int:
        table, incarnation, places = self._all()
        return hash((table, incarnation, frozenset(places.items())))

    def _all(self) -> tuple[str, int, dict[int, Place]]:
        return self.table, self.incarnation, self.places

    def __repr__(self) -> str:
        return f"TablePosition({self.table!r}, {self.incarnation}, {self.places!r})"

    def __str__(self) -> str:
        places: dict[int, tuple[int, int, bytes | None]] = dict(self.places)
        return encoded(_Token(self.table, self.incarnation, places))

    @classmethod
    def parse(cls, token: str) -> "TablePosition":
        """Inverse of `str`. Raises InvalidRequest.

        ::

            position = TablePosition.parse(token)
        """
        opened = decoded(token, _Token)
        if opened is None:
            raise InvalidRequest(
                "the text is not a position of a table",
                remedy="use the text of the position of a change", given=token[:80],
            )  # fmt: skip
        places = {segment_id: Place(*place) for segment_id, place in opened.at.items()}
        if any(min(place.offset, place.entry_index) < 0 for place in places.values()):
            raise InvalidRequest("the position is negative", table=opened.table)
        return cls(opened.table, opened.incarnation, places)
