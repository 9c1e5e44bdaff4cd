"""The streams that a Spark cluster works with: one is full, and in tier 2 as well."""

from dataclasses import dataclass

from anabranch.client import Client
from kit.cluster_thread import ClusterThread
from kit.spark_cluster.standalone import Standalone
from kit.spark_cluster.submitting import Submitter

SCOPE = "far"
SOURCE = f"{SCOPE}/source"
EVENTS = 24_000
SEGMENTS = 4
HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000


def payload(number: int) -> bytes:
    return b"%08d " % number + b"x" * 91


@dataclass(frozen=True)
class Far:
    """The streams' cluster, its tier 2 in a bucket, and Spark beside it."""

    streams: ClusterThread
    tier2: str
    spark: Standalone
    submit: Submitter
    bucket: str

    def events(self, stream: str) -> list[bytes]:
        """All events of a stream, sorted."""

        async def read(client: Client) -> list[bytes]:
            async with client.reader(stream, until_tail=True) as reader:
                return sorted([bytes(event.payload) async for event in reader])

        return self.streams.run(read)

    def create(self, stream: str) -> str:
        self.streams.run(lambda client: client.streams.create(stream, segments=SEGMENTS))
        return stream


async def fill(client: Client) -> None:
    await client.scopes.create(SCOPE)
    await client.streams.create(SOURCE, segments=SEGMENTS)
    async with client.writer(SOURCE) as writer:
        for number in range(EVENTS):
            at = BEGIN_MS + number * 48 * HOUR_MS // EVENTS
            writer.write(payload(number), key=f"{number % 97}", timestamp_ms=at)
            if number % 1000 == 0:
                await writer.flush()
    await client.cluster.flush_to_tier2()
