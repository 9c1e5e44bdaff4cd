"""Columns of tables as Arrow arrays, without pandas, which `pa.array` would import first."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

TIME = pa.timestamp("us", "UTC")
TEXTS = pa.list_(pa.string())
_TIME_MS_MAX = (2**63 - 1) // 1000
_NUMBERS: Mapping[pa.DataType, type[Any]] = {
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float64(): np.float64,
    TIME: np.int64,
}


def batch(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows, each with a value per column in the order of the schema.

    None is a null; a time is Unix milliseconds.
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.RecordBatch.from_arrays(
        [column(each.type, values) for each, values in zip(schema, columns, strict=True)],
        schema=schema,
    )


def column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """The values as an array of this type, one of those of the tables' columns."""
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    validity = None if valid.all() else _bits(valid)
    if kind == pa.string():
        return _texts(values, validity)
    if kind == TEXTS:
        inner = [text for value in values for text in value or ()]
        buffers = [validity, _offsets(len(value or ()) for value in values)]
        return pa.Array.from_buffers(kind, len(values), buffers, children=[_texts(inner, None)])
    if kind == pa.bool_():
        held = np.fromiter((bool(value) for value in values), np.bool_, len(values))
        return pa.Array.from_buffers(kind, len(values), [validity, _bits(held)])
    if kind == TIME:
        values = [None if value is None else _microseconds(value) for value in values]
    numbers = np.array([0 if value is None else value for value in values], _NUMBERS[kind])
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(numbers)])


def _microseconds(unix_ms: int) -> int:
    """The time in Spark's unit; one beyond its range becomes the first or the last of the range."""
    return 1000 * max(-_TIME_MS_MAX, min(unix_ms, _TIME_MS_MAX))


def _texts(values: Sequence[str | None], validity: pa.Buffer | None) -> pa.Array:
    stored = [b"" if value is None else value.encode() for value in values]
    buffers = [validity, _offsets(map(len, stored)), pa.py_buffer(b"".join(stored))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _offsets(sizes: Any) -> pa.Buffer:
    return pa.py_buffer(np.cumsum([0, *sizes], dtype=np.int32))


def _bits(values: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
