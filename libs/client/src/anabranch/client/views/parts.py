"""The parts of a client that a view is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.client.admin.tables import Tables
from anabranch.client.groups.admin import ReaderGroups
from anabranch.client.groups.group import ReaderGroup
from anabranch.client.reading.bounds import StreamBounds
from anabranch.client.runtime import Runtime
from anabranch.client.tables.table import Table
from anabranch.common.model.names import StreamRef


@dataclass(frozen=True, slots=True)
class ViewParts:
    """The stream, group and table of one view, and the administration of groups and tables."""

    stream: StreamRef
    group: ReaderGroup
    table: Table[Any, bytes]
    groups: ReaderGroups
    tables: Tables
    bounds: Callable[[StreamRef], StreamBounds]
    runtime: Runtime
