"""The beginning of a view: its group and table exist, and the table is the one that it began with.

A table that was deleted and created again has no rows, but the group would continue behind the
events that it has read. The table therefore gets a view row before the first reader of the view
joins the group. If the row is missing although readers have had segments of the group, the view is
refused.

Of two processes that begin at the same time, one inserts the row. A process asks for the group's
state before it asks for the row: if another process has joined the group by then, the row is there.
"""

from contextlib import suppress
from typing import Any

from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.views.parts import ViewParts
from anabranch.client.views.ports import ViewTable
from anabranch.client.views.positions import VIEW_ROW, check_format, view_key
from anabranch.common.errors import InvalidRequest, ReaderGroupExists, TableExists, ViewMismatch
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.wire.table_columns import ABSENT


async def create(parts: ViewParts) -> None:
    """Create the reader group and the table, unless they exist. Raises ScopeNotFound,
    StreamNotFound."""
    with suppress(ReaderGroupExists):
        await parts.groups.create(str(parts.group.ref), streams=[str(parts.stream)])
    with suppress(TableExists):
        await parts.tables.create(str(parts.table.table))


async def begin(parts: ViewParts, table: ViewTable[Any]) -> None:
    """Check that the group reads the stream, and begin the view in the table, or find it there.

    Raises ReaderGroupNotFound, InvalidRequest, ViewMismatch, and the errors of the table.
    """
    config = (await parts.group.describe()).config
    if parts.stream not in [each.ref for each in config.streams]:
        raise InvalidRequest(
            "the reader group does not read the stream of the view",
            remedy="use a group of the view's own",
            group=str(parts.group.ref), stream=str(parts.stream),
        )  # fmt: skip
    await begin_in(table, parts.group.ref, await parts.group.was_read(), str(parts.table.table))


async def begin_in(table: ViewTable[Any], group: GroupRef, was_read: bool, name: str) -> None:
    """Find the view row, or insert it unless the group `was_read` already."""
    key = view_key(group)
    found = await (await table.look_up(0, (key,)))
    if found.versions[0] != ABSENT:
        check_format(found.values[0])
        return
    if was_read:
        raise ViewMismatch(
            "the reader group has read events that the table does not have",
            group=str(group), table=name,
        )  # fmt: skip
    # If the insertion is refused, another process was faster.
    await (await table.update(0, StoredUpdate((key,), (VIEW_ROW,), (ABSENT,), 0)))
