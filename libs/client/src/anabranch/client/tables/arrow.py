"""Pages of entries as Arrow columns, without a Python object per entry; needs pyarrow and numpy.

    key         binary, the table key
    value       binary, as it is stored
    version     struct of int64: segment_id, segment_number, number; the fields of `Version`
    expires_ms  int64, 0 for never

Keys and values are not copied. Imported when it is first needed, because pyarrow is no dependency
of the client.
"""

from array import array

import numpy as np
import pyarrow as pa

from anabranch.client.reading.arrow import fixed
from anabranch.client.tables.pages import Page

_VERSION = pa.struct(
    [pa.field(name, pa.int64(), nullable=False)
     for name in ("segment_id", "segment_number", "number")]
)  # fmt: skip
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("version", _VERSION, nullable=False),
        pa.field("expires_ms", pa.int64(), nullable=False),
    ]
)


def batch_of(segment_id: int, page: Page) -> pa.RecordBatch:
    """The entries of a page of the partition."""
    rows, count = page.rows, len(page.rows)
    data = memoryview(rows.data)
    ids = [np.full(count, each, np.int64) for each in (segment_id, page.segment_number)]
    numbers = np.frombuffer(rows.versions, np.int64)
    parts = [fixed(pa.int64(), each) for each in (*ids, numbers)]
    return pa.RecordBatch.from_arrays(
        [
            _binary(rows.key_sizes, data[rows.keys_at : rows.values_at]),
            _binary(rows.value_sizes, data[rows.values_at :]),
            pa.StructArray.from_arrays(parts, fields=list(_VERSION)),
            fixed(pa.int64(), np.frombuffer(rows.expires_ms, np.int64)),
        ],
        schema=SCHEMA,
    )


def _binary(sizes: "array[int]", joined: memoryview) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.frombuffer(sizes, np.uint32), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
