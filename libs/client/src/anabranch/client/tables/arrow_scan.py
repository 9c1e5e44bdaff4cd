"""Iterates over the entries of a range as Arrow record batches, one batch per page."""

from importlib import import_module
from typing import TYPE_CHECKING, Self

from anabranch.client.serializers import require_pyarrow
from anabranch.client.tables.parts import TableParts
from anabranch.client.tables.scan import ScanPlan, pages_of

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowScan:
    """Entries as record batches; made by `Table.scan_arrow`.

    ::

        async for rows in table.scan_arrow():
            print(rows.num_rows, rows.column("key"))

    The columns are key, value (binary, as they are stored), version (a struct of the fields of
    `Version`) and expires_ms. Each batch has entries of one partition, in the order of their keys;
    the partitions take turns.
    """

    def __init__(self, plan: ScanPlan, parts: TableParts) -> None:
        """Raises CodecMissing without pyarrow."""
        require_pyarrow()
        self._pages = pages_of(plan, parts)
        ids = [each.segment_id for each in plan.partitions]
        self._turns = list(zip(ids, self._pages, strict=True))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "pa.RecordBatch":
        """The next batch. Raises TableNotFound, Unavailable, Closed."""
        for _, pages in self._turns:
            pages.begin()
        while self._turns:
            segment_id, pages = self._turns[0]
            page = await pages.next()
            del self._turns[0]
            if page is not None:
                self._turns.append((segment_id, pages))
                batch: pa.RecordBatch = import_module("anabranch.client.tables.arrow").batch_of(
                    segment_id, page
                )
                return batch
        raise StopAsyncIteration

    def close(self) -> None:
        """Stop reading; later iterations raise Closed. Repeatable.

        ::

            scan.close()
        """
        for pages in self._pages:
            pages.close()
