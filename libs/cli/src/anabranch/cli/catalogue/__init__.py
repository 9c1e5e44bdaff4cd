"""Every command as a row: its words, its function, one line of help, examples.

A new command is one function and one row here. `anabranch.cli.app` builds the parser from these
rows and imports a command's module only when its words were typed.
"""

from anabranch.cli.catalogue.cluster import (
    CLUSTER,
    CONTAINER,
    CONTROLLER,
    OPERATION,
    SEGSTORE,
    SPU,
    SPU_GROUP,
    TIER2,
)
from anabranch.cli.catalogue.data import EVENTS, GROUP, SCOPE, STARTING, STREAM, TRANSACTION
from anabranch.cli.catalogue.health import HEALTH
from anabranch.cli.catalogue.measuring import PERF, TOP
from anabranch.cli.catalogue.pipelines import PIPELINE
from anabranch.cli.catalogue.row import Command, Entry, Group, Heading, commands, paths
from anabranch.cli.catalogue.tables import TABLE
from anabranch.cli.catalogue.this_machine import COMPLETION, CONTEXT
from anabranch.cli.catalogue.topics import CONSUMER, PARTITION, RECORDS, TOPIC

__all__ = ["CATALOGUE", "ENTRIES", "Command", "Entry", "Group", "Heading", "commands", "paths"]

CATALOGUE = (
    Heading("Start here", STARTING),
    Heading("Events", EVENTS),
    Heading("Streams, readers and tables", (SCOPE, STREAM, GROUP, TRANSACTION, TABLE)),
    Heading("Topics and their records", (*RECORDS, TOPIC, PARTITION, CONSUMER)),
    Heading("Pipelines on Spark", (PIPELINE,)),
    Heading("Measure and watch", (PERF, TOP)),
    Heading("The cluster", (CLUSTER, SPU, SPU_GROUP, CONTAINER, OPERATION)),
    Heading("Health and support", HEALTH),
    Heading("Backup, inspection and repair", (CONTROLLER, SEGSTORE, TIER2)),
    Heading("This program", (CONTEXT, COMPLETION)),
)

ENTRIES: tuple[Entry, ...] = tuple(entry for heading in CATALOGUE for entry in heading.entries)
