"""The asynchronous Python client of Anabranch: administration, writers and readers.

::

    async with connect("nats://127.0.0.1:4222") as client:
        await client.create_stream("plant/sensors", segments=4)
        async with client.writer("plant/sensors") as writer:
            writer.write(b"21.5", key="boiler")
            await writer.flush()
        async with client.reader("plant/sensors", until_tail=True) as reader:
            async for event in reader:
                print(event.key, event.payload)
"""

from anabranch.client.client import Client, Connecting, connect
from anabranch.client.reader import Event, EventBatch, EventReader, Position
from anabranch.client.settings import ReaderSettings, WriterSettings
from anabranch.client.writer import EventWriter

__all__ = [
    "Client",
    "Connecting",
    "Event",
    "EventBatch",
    "EventReader",
    "EventWriter",
    "Position",
    "ReaderSettings",
    "WriterSettings",
    "connect",
]
