"""A streaming query of tests, as often as it is started, and the cluster that it follows.

A query hands its batches to the test, which restarts it from its checkpoint as it likes.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.client import Client
from anabranch.common.model.key_range import even_ranges
from kit.cluster_thread import ClusterThread

SCOPE = "following"
QUERY_SECONDS_MAX = 120


@dataclass
class Following:
    """One query, as often as it is started: its options, its checkpoint, and what it was given."""

    session: SparkSession
    running: ClusterThread
    checkpoint: Path
    options: dict[str, str]
    batches: dict[int, list[str]] = field(default_factory=dict)
    """Batch id → the payloads of its last run."""
    runs: list[int] = field(default_factory=list)
    """The ids of the batches in the order in which they ran, repeated ones included."""
    before_batch: Callable[[int], None] = lambda _: None

    def start(self, more: Mapping[str, object], *, available_now: bool = True) -> StreamingQuery:
        options = {**self.options, **{name: str(value) for name, value in more.items()}}
        reader = self.session.readStream.format("anabranch")
        events = reader.option("nats_url", self.running.nats_url).options(**options).load()
        writer = events.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="100 milliseconds").start()

    def run(self, **more: object) -> StreamingQuery:
        """Let the query take what is there, and end. Raises its error."""
        query = self.start(more)
        assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
        return query

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        self.before_batch(batch_id)
        found = [bytes(row["event"]).decode() for row in batch.select("event").collect()]
        self.batches[batch_id] = found
        self.runs.append(batch_id)

    @property
    def events(self) -> list[str]:
        """All payloads, sorted; an event that came twice is there twice."""
        return sorted(event for events in self.batches.values() for event in events)


@dataclass
class World:
    """The cluster, with a scope for this module."""

    session: SparkSession
    running: ClusterThread
    directory: Path

    def do(self, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        return self.running.run(work)

    def create(self, name: str, segments: int = 2) -> str:
        stream = f"{SCOPE}/{name}"
        self.do(lambda client: client.streams.create(stream, segments=segments))
        return stream

    def write(self, stream: str, label: str, count: int = 200) -> list[str]:
        """Write events `<label>-<number>` in several blocks; returns them sorted."""
        events = [f"{label}-{number:04}" for number in range(count)]

        async def work(client: Client) -> None:
            async with client.writer(stream) as writer:
                for number, event in enumerate(events):
                    writer.write(event.encode(), key=f"k{number % 50}")
                    if number % 20 == 19:
                        await writer.flush()

        self.do(work)
        return sorted(events)

    def scale(self, stream: str, count: int) -> None:
        ranges = [(keys.start, keys.end) for keys in even_ranges(count)]

        async def work(client: Client) -> None:
            current = await client.streams.current_segments(stream)
            await client.streams.scale(
                stream, [each.segment_id for each in current.segments], ranges
            )

        self.do(work)

    def truncate_all(self, stream: str) -> None:
        async def work(client: Client) -> None:
            await client.streams.truncate(stream, await client.streams.tail_cut(stream))

        self.do(work)

    def following(self, stream: str = "", **options: object) -> Following:
        texts = {name: str(value) for name, value in options.items()}
        if stream:
            texts["stream"] = stream
        return Following(self.session, self.running, self.directory / "checkpoint", texts)
