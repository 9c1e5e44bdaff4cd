"""Records as Arrow columns, without a Python object per record; needs pyarrow and numpy.

    topic         dictionary of strings
    partition     int32
    offset        int64, the record's number in its partition
    timestamp     timestamp("ms", UTC)
    key           string, null where the record has none
    value         binary

Imported when it is first needed (`records`), because pyarrow is no dependency of the client.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.client.reading.arrow import ArrowColumns, PlacedBlock, columns_of, fixed, strings
from anabranch.client.topics.records import RecordBatch

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("key", pa.string()),
        pa.field("value", pa.binary(), nullable=False),
    ]
)


def batch_of(batches: Sequence[RecordBatch]) -> pa.RecordBatch:
    """The records of at least one opened batch as one batch. Raises CorruptBlock."""
    columns = columns_of([_placed(batch) for batch in batches])
    counts = [len(batch.events.fetched.block) for batch in batches]
    topics = list(dict.fromkeys(batch.topic for batch in batches))
    # Numbers of whole blocks; `_asked` removes the records that a batch leaves out.
    firsts = [batch.offset - batch.events.fetched.start_index for batch in batches]
    offsets = np.concatenate(
        [
            np.arange(first, first + count, dtype=np.int64)
            for first, count in zip(firsts, counts, strict=True)
        ]
    )
    partitions = np.repeat(np.array([batch.partition for batch in batches], np.int32), counts)
    numbers = np.repeat(np.array([topics.index(each.topic) for each in batches], np.int32), counts)
    topic = pa.DictionaryArray.from_arrays(fixed(pa.int32(), numbers), strings(topics))
    made = _assembled(topic, partitions, offsets, columns)
    return _asked(made, batches, counts)


def _assembled(
    topic: pa.Array,
    partitions: "np.ndarray[tuple[int], np.dtype[np.int32]]",
    offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    columns: ArrowColumns,
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            topic,
            fixed(pa.int32(), partitions),
            fixed(pa.int64(), offsets),
            fixed(SCHEMA.field("timestamp").type, columns.times_ms),
            columns.key,
            columns.event,
        ],
        schema=SCHEMA,
    )


def _asked(
    made: pa.RecordBatch, batches: Sequence[RecordBatch], counts: Sequence[int]
) -> pa.RecordBatch:
    """Without the records of blocks that their batches leave out."""
    fetched = [batch.events.fetched for batch in batches]
    if not any(each.start_index or each.stop_index is not None for each in fetched):
        return made
    if len(fetched) == 1:
        return made.slice(fetched[0].start_index, len(batches[0]))
    is_asked = np.concatenate(
        [
            (np.arange(count) >= each.start_index)
            & (np.arange(count) < (count if each.stop_index is None else each.stop_index))
            for each, count in zip(fetched, counts, strict=True)
        ]
    )
    return made.take(fixed(pa.int64(), np.flatnonzero(is_asked)))


def _placed(batch: RecordBatch) -> PlacedBlock:
    fetched = batch.events.fetched
    return PlacedBlock(fetched.segment, fetched.offset, fetched.block.header, fetched.block.body)
