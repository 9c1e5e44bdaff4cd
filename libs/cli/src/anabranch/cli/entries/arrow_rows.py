"""Entries as Arrow record batches. Imported when it is first needed, because pyarrow is no
dependency of the command.

    key            binary
    secondary_key  binary; only of tables with secondary keys
    value          binary; only if entries have values
    version        string
    expires_ms     timestamp("ms", UTC), null for never
"""

from collections.abc import Sequence

import pyarrow as pa

from anabranch.cli.arrow_files import Rows
from anabranch.cli.entries.records import StoredEntry

_TIME = pa.timestamp("ms", "UTC")


def rows_of(*, has_pairs: bool, values: bool) -> Rows[Sequence[StoredEntry]]:
    """The rows of entries with or without secondary keys and values."""
    schema = _schema(has_pairs=has_pairs, values=values)
    return Rows(schema, lambda batch: _batch(batch, schema))


def _schema(*, has_pairs: bool, values: bool) -> pa.Schema:
    fields = [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("secondary_key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("expires_ms", _TIME),
    ]
    left_out = {"secondary_key": not has_pairs, "value": not values}
    return pa.schema([field for field in fields if not left_out.get(field.name)])


def _batch(entries: Sequence[StoredEntry], schema: pa.Schema) -> pa.RecordBatch:
    keys = [entry.key if isinstance(entry.key, tuple) else (entry.key, b"") for entry in entries]
    columns = {
        "key": [primary for primary, _ in keys],
        "secondary_key": [secondary for _, secondary in keys],
        "value": [entry.value for entry in entries],
        "version": [str(entry.version) for entry in entries],
        "expires_ms": [entry.expires_ms or None for entry in entries],
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema)
