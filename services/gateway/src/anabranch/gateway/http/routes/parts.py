"""The dependencies of the routes; wiring attaches one `Parts` to each application."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from opentelemetry.trace import Tracer
from starlette.requests import Request

from anabranch.client import Client
from anabranch.common.runtime.health import PartHealth
from anabranch.common.runtime.ids import IdSource
from anabranch.gateway.bounds.changes import Changes
from anabranch.gateway.bounds.places import ReadPlaces
from anabranch.gateway.events.appends import Appends
from anabranch.gateway.events.held_readers import HeldReaders
from anabranch.gateway.events.reads import Reads
from anabranch.gateway.events.writers import OpenWriters
from anabranch.gateway.http.edge.metrics import GatewayMetrics
from anabranch.gateway.http.edge.used_keys import UsedKeys
from anabranch.gateway.settings import Settings
from anabranch.gateway.tables.open_tables import OpenTables
from anabranch.gateway.tables.reads import EntryReads
from anabranch.gateway.tables.updates import Updates
from anabranch.gateway.topics.producers import OpenProducers
from anabranch.gateway.topics.produces import Produces
from anabranch.gateway.topics.reads import RecordReads
from anabranch.gateway.tunnels.stores import KnownStores


@dataclass(frozen=True, slots=True)
class Parts:
    """`health` reports the parts of the process; without a `tracer`, there are no traces."""

    settings: Settings
    client: Client
    writers: OpenWriters
    changes: Changes
    places: ReadPlaces
    appends: Appends
    reads: Reads
    tables: OpenTables
    updates: Updates
    entries: EntryReads
    producers: OpenProducers
    produces: Produces
    record_reads: RecordReads
    group_readers: HeldReaders
    ids: IdSource
    keys: UsedKeys
    metrics: GatewayMetrics
    stores: KnownStores
    tracer: Tracer | None
    health: Callable[[], Mapping[str, PartHealth]]


def parts_of(request: Request) -> Parts:
    return cast("Parts", request.app.state.parts)
