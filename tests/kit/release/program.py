"""The programs that a trial runs in its environment, where only the distributions are installed.

They are texts, because a module of this repository cannot be imported there.
"""

CLIENT = '''
"""The client alone: it loads little, and says what to install for the rest."""
import sys
from importlib.metadata import distributions

import anabranch.client
from anabranch.client import CodecMissing, Unavailable, blocking
from anabranch.common.wire.codec import require_zstd

optional = {"obstore", "opentelemetry-api", "prometheus-client", "pyarrow", "zstandard"}
installed = {each.name for each in distributions()}
assert not optional & installed, optional & installed
try:
    blocking.connect("nats://127.0.0.1:1", timeout_s=0.5)
except Unavailable:
    pass
else:
    sys.exit("port 1 answered")
try:
    require_zstd()
except CodecMissing as error:
    assert error.remedy == "pip install 'anabranch-client[zstd]'", error.remedy
else:
    sys.exit("Zstandard is installed")
'''

EXTRAS = '''
"""The extras of the client: compression, Arrow, traces."""
import pyarrow
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider

from anabranch.client import ArrowSerializer
from anabranch.client.tracing import tracer_for
from anabranch.common.wire.codec import compress_zstd, decompress_zstd

assert decompress_zstd(compress_zstd(b"21.5" * 100, 3), 400) == b"21.5" * 100
table = pyarrow.table({"celsius": [21.5, 21.7]})
arrow = ArrowSerializer()
assert arrow.deserialize(arrow.serialize(table)) == table
assert tracer_for(None) is None
trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
assert tracer_for(None) is not None
assert OTLPSpanExporter
'''

CLUSTER = '''
"""A cluster in use: writers, a transaction, a compressed stream, readers."""
import asyncio
import sys
from pathlib import Path

from anabranch.client import WriterSettings, connect


async def main(endpoints_file: Path) -> None:
    async with connect(endpoints_file) as client:
        await client.scopes.create("release")
        await client.streams.create("release/events", segments=2)
        settings = WriterSettings(compression="zstd")
        async with client.writer("release/events", settings) as writer:
            for number in range(1000):
                writer.write(b"reading %d" % number, key=f"sensor-{number % 10}")
            await writer.flush()
            async with writer.transaction() as transaction:
                transaction.write(b"valve closed", key="sensor-3")
        async with client.reader("release/events", until_tail=True) as reader:
            events = [event async for event in reader]
    assert len(events) == 1001, len(events)
    third = [event.payload for event in events if event.key == "sensor-3"]
    assert third == [b"reading %d" % n for n in range(3, 1000, 10)] + [b"valve closed"]


asyncio.run(main(Path(sys.argv[1])))
'''
