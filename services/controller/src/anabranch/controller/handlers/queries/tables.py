"""Queries about key-value tables."""

from anabranch.common.contracts import tables as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import TableNotFound
from anabranch.common.model.names import scope_name
from anabranch.common.model.table import TableState, table_ref
from anabranch.controller.domain.kinds import TABLES
from anabranch.controller.domain.kv_table.answers import described
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, found_scope
from anabranch.controller.handlers.queries.lists import paged


async def describe_table(desk: QueryDesk, query: asked.DescribeKeyValueTable) -> Contract:
    """The table, also while it is created or deleted. Raises TableNotFound, ScopeNotFound.

    Only a table that is created or active is described as folded so far. Any other state is a
    final one or leads to one, so the answer is made at the head.
    """
    ref = table_ref(f"{query.scope}/{query.table}")
    loaded = desk.mirror.table(ref)
    if loaded is None or loaded.state.status not in (TableState.CREATING, TableState.ACTIVE):
        loaded = await desk.mirror.table_at_head(ref)
    if loaded is None or not loaded.state.is_live:
        await found_scope(desk, ref.scope)
        raise TableNotFound("no such key-value table", table=str(ref))
    return described(loaded.state)


async def list_tables(desk: QueryDesk, query: asked.ListTables) -> Contract:
    """The scope's key-value tables, sorted, without half-created ones. Raises ScopeNotFound."""
    scope = (await found_scope(desk, scope_name(query.scope))).name
    names = desk.mirror.names.of(TABLES, scope, after=query.page_token)
    page, following = paged(names, query.page_size)
    return asked.TableList(tables=page, next_page_token=following)


QUERIES: Table = {
    "describe_table": (asked.DescribeKeyValueTable, describe_table),
    "list_tables": (asked.ListTables, list_tables),
}
