"""Any history of updates, repeats and restarts of a store is that of a dict with versions."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.wire.messages import REQUESTS_REMEMBERED, TableUpdated
from anabranch.common.wire.table_columns import ABSENT, ANY, Refusal
from kit.served_table import PROVIDERS, ServedTable
from kit.thorough import one_in

KINDS = ("any", "absent", "present", "wrong")
NAMES = [b"a", b"b", b"c", b"d"]
entry = st.tuples(st.sampled_from(NAMES), st.none() | st.binary(max_size=4), st.sampled_from(KINDS))
histories = st.lists(
    st.tuples(
        st.sampled_from(["update", "update", "update", "repeat", "restart"]),
        st.lists(st.lists(entry, min_size=1, max_size=3), min_size=1, max_size=3),
    ),
    max_size=12,
)
Model = dict[bytes, tuple[int, bytes]]
"""Key → (version, value)."""


@dataclass
class Asked:
    """An update and its answer."""

    entries: list[tuple[bytes, bytes | None]]
    conditions: list[int]
    units: list[int]
    life: int
    answer: tuple[TableUpdated, list[Refusal]]


class History:
    """Performs updates on a store and on a dict, and compares every answer."""

    def __init__(self, table: ServedTable) -> None:
        self._table = table
        self.model: Model = {}
        self._life = 0
        self._number = 0
        self._asked: dict[int, Asked] = {}
        self._stored: set[int] = set()

    async def update(self, units: list[list[tuple[bytes, bytes | None, str]]]) -> None:
        entries = [(key, value) for unit in units for key, value, _ in unit]
        conditions: list[int] = []
        for unit in units:
            for key, _, kind in unit:
                version = self.model.get(key, (ABSENT, b""))[0]
                wrong = version + 1 if version != ABSENT else 12345
                by_kind = {"any": ANY, "absent": ABSENT, "present": version, "wrong": wrong}
                conditions.append(by_kind[kind])
        self._number += 1
        life, sizes = self._life, [len(unit) for unit in units]
        length = (await self._table.describe()).length
        told, refusals = await self._table.update(
            entries, conditions, sizes, number=self._number, life=life
        )
        self._life = told.segment_number
        self._asked[self._number] = Asked(entries, conditions, sizes, life, (told, refusals))
        kept = self._expect(units, conditions, refusals, length)
        if kept:
            self._stored.add(self._number)
        assert told.version == (length if kept else ABSENT)

    def _expect(
        self,
        units: list[list[tuple[bytes, bytes | None, str]]],
        conditions: list[int],
        refusals: list[Refusal],
        length: int,
    ) -> int:
        """Decide as the contract says → how many entries were performed. The first of them has the
        segment's length before as its version."""
        expected: list[Refusal] = []
        kept = at = 0
        for number, unit in enumerate(units):
            tried: dict[bytes, tuple[int, bytes] | None] = dict(self.model)
            for offset, (key, value, _) in enumerate(unit):
                present = (tried.get(key) or (ABSENT, b""))[0]
                wanted = conditions[at + offset]
                if wanted not in (ANY, present):
                    expected.append(Refusal(number, at + offset, present))
                    break
                tried[key] = None if value is None else (length + kept + offset, value)
            else:
                self.model = {key: found for key, found in tried.items() if found is not None}
                kept += len(unit)
            at += len(unit)
        assert refusals == expected
        return kept

    async def repeat(self) -> None:
        for number in list(self._asked)[-REQUESTS_REMEMBERED:]:
            asked = self._asked[number]
            again = await self._table.update(
                asked.entries, asked.conditions, asked.units, number=number, life=asked.life
            )
            assert again == asked.answer

    async def restart(self) -> None:
        """A store forgets requests that were refused as a whole: they are not in its log."""
        await self._table.restart()
        self._asked = {
            number: asked for number, asked in self._asked.items() if number in self._stored
        }


@pytest.mark.parametrize("name", sorted(PROVIDERS))
@given(history=histories)
@settings(max_examples=60 // one_in(4))
def test_every_history_is_that_of_a_dict_with_versions(
    name: str, history: list[tuple[str, list[list[tuple[bytes, bytes | None, str]]]]]
) -> None:
    async def play() -> None:
        async with PROVIDERS[name]() as served:
            run = History(served)
            for step, units in history:
                match step:
                    case "update":
                        await run.update(units)
                    case "repeat":
                        await run.repeat()
                    case "restart":
                        await run.restart()
                assert await served.everything() == dict(sorted(run.model.items()))

    asyncio.run(play())
