"""The commands that measure a cluster, and the one that watches it."""

from anabranch.cli.catalogue.row import Command, Group

PERF = Group(
    "perf",
    "Measure writes, reads, latencies and scales with a load.",
    (
        Command(
            "write",
            "perf.write:write",
            "Measure how fast a stream takes events, and how soon they are acknowledged.",
            (
                "anabranch perf write --seconds 2",
                "anabranch perf write --rate 2000 --keys 100 --segments 4 --seconds 2",
            ),
        ),
        Command(
            "read",
            "perf.read:read",
            "Measure how fast a stream is read from its head, or how soon its new events arrive.",
            (
                "anabranch perf read demo/sensors",
                "anabranch perf read demo/sensors --follow --seconds 2",
            ),
        ),
        Command(
            "latency",
            "perf.latency:latency",
            "Measure the time of one awaited event at a time, and of its way to a reader.",
            ("anabranch perf latency --seconds 2", "anabranch perf latency --rate 100 --events 50"),
        ),
        Command(
            "scale",
            "perf.scale:scale",
            "Measure how long a writer pauses while its stream is split and merged, and check "
            "every event.",
            ("anabranch perf scale --scales 2",),
        ),
    ),
)

TOP = Command(
    "top",
    "top.command:top",
    "Watch streams, reader groups, members and work of the cluster.",
    ("anabranch top", "anabranch top --once", "anabranch top --json --once"),
)
