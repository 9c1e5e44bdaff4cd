"""Answers to queries about one key-value table, from its state. Pure."""

from anabranch.common.contracts.tables import Partition, TableDescription
from anabranch.controller.domain.kv_table.state import KvTable


def described(table: KvTable) -> TableDescription:
    """The description of a live table."""
    assert table.ref is not None
    assert table.status is not None
    assert table.config is not None
    present = table.present
    return TableDescription(
        scope=table.ref.scope,
        table=table.ref.table,
        incarnation=table.incarnation,
        state=table.status,
        created_ms=table.created_ms,
        config=table.config,
        epoch=present.epoch,
        epoch_ms=present.created_ms,
        partitions=tuple(
            Partition(
                segment_id=each.segment_id,
                segment=segment,
                key_start=each.keys.start,
                key_end=each.keys.end,
            )
            for each, segment in zip(present.partitions, table.present_names(), strict=True)
        ),
    )
