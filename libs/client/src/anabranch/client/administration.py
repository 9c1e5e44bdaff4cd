"""The parts of a client that work before it is entered: administration, and bulk reads of segments.

Commands return when the operation is complete and raise the controller's errors. Each takes
`timeout_s`, after which it raises OutcomeUnknown with the operation's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anabranch.client as public
from anabranch.client.wire.control import ConnectionPool, ControlPlane, SegmentDirectory
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng

if TYPE_CHECKING:
    from anabranch.client.reading.ranges import SegmentRanges


class Administration:
    """The administration of a cluster, as parts of a `Client`.

    ::

        print(await client.streams.describe("plant/sensors"))
    """

    def __init__(self, control: ControlPlane, pool: ConnectionPool, clock: Clock, rng: Rng) -> None:
        self._control = control
        self._pool = pool
        self._directory = SegmentDirectory(control, pool)
        self._clock = clock
        self._rng = rng

    @property
    def control_plane(self) -> ControlPlane:
        """The port behind all administration, for programs such as gateways that forward requests.

        ::

            answer = await client.control_plane.query("locate", query, Located, timeout_s=10)
        """
        return self._control

    @property
    def scopes(self) -> public.Scopes:
        """Create, delete, describe and list scopes."""
        return public.Scopes(self._control)

    @property
    def streams(self) -> public.Streams:
        """Create, change, scale, truncate, seal, delete and describe streams."""
        return public.Streams(self._control, self.ranges())

    @property
    def tables(self) -> public.Tables:
        """Create, configure, seal, delete and describe key-value tables."""
        return public.Tables(self._control)

    @property
    def reader_groups(self) -> public.ReaderGroups:
        """Create, reset, delete and describe reader groups."""
        from anabranch.client.reading.places import Places

        return public.ReaderGroups(self._control, Places(self.ranges()))

    @property
    def operations(self) -> public.Operations:
        """Operations: the states and outcomes of commands."""
        return public.Operations(self._control, self._clock)

    @property
    def cluster(self) -> public.Cluster:
        """The cluster as a whole: an overview, lost members, flushing to tier 2."""
        return public.Cluster(self._control, self._pool, self._clock)

    @property
    def controllers(self) -> public.Controllers:
        """Controllers: which are alive, and which one leads."""
        return public.Controllers(self._control)

    @property
    def stores(self) -> public.Stores:
        """Segment stores: which are alive, where each listens, and draining them."""
        return public.Stores(self._control)

    @property
    def spus(self) -> public.Spus:
        """SPUs: register, unregister and list them."""
        return public.Spus(self._control)

    @property
    def spu_groups(self) -> public.SpuGroups:
        """SPU groups: create, scale, delete and list them."""
        return public.SpuGroups(self._control)

    @property
    def containers(self) -> public.Containers:
        """Containers: the store of each, why one does not serve, and moving and enabling them."""
        return public.Containers(self._control)

    @property
    def parked(self) -> public.Parked:
        """Commands and work that a service put aside because its handler failed."""
        return public.Parked(self._control)

    def ranges(self) -> SegmentRanges:
        """Stored bytes of segments, for bulk readers; works on a client that is not entered.

        ::

            info = await client.ranges().info(segment)
        """
        from anabranch.client.reading.ranges import SegmentRanges

        return SegmentRanges(self._control, self._directory, clock=self._clock, rng=self._rng)
