"""Runs a streaming query of a pipeline to its end."""

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S = 1


def triggered(writer: DataStreamWriter, *, follow: bool, every_s: float) -> DataStreamWriter:
    """One run to the present tail, or a batch at every interval."""
    if follow:
        return writer.trigger(processingTime=f"{every_s} seconds")
    return writer.trigger(availableNow=True)


def await_end(query: StreamingQuery, *, follow: bool) -> None:
    """Wait for the query's end; Ctrl-C ends one that follows. Raises its error."""
    try:
        while not query.awaitTermination(POLL_S):
            pass
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        query.stop()
