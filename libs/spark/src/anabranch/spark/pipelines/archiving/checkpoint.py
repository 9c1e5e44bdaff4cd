"""Spark's log of a streaming query, in a directory of the driver.

    metadata       the id of the query
    offsets/<n>    a line of version, a line of settings, and the offset that ends batch n
    commits/<n>    batch n is done

`begin` writes the log of a query that has done one batch, so that the next query continues at its
offset. `offset_of` reads the offset that Spark has written before it runs a batch.
"""

import json
import re
from pathlib import Path

from anabranch.common.runtime.ids import IdSource

_VERSION = "v1"
_OFFSETS, _COMMITS = "offsets", "commits"
_SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
_DONE = '{"nextBatchWatermarkMs":0}'


def begin(log: Path, offset: str, ids: IdSource) -> None:
    """Begin the log at an offset; an empty one stands for the beginning of the stream."""
    if not offset:
        return
    query = re.sub("(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", ids.new_id())
    (log / "metadata").write_text(json.dumps({"id": query}))
    for name, lines in ((_OFFSETS, (_SETTINGS, offset)), (_COMMITS, (_DONE,))):
        (log / name).mkdir(parents=True)
        (log / name / "0").write_text("\n".join((_VERSION, *lines)))


def offset_of(log: Path, batch: int) -> str:
    """The offset that ends the batch."""
    return (log / _OFFSETS / str(batch)).read_text().splitlines()[2]
