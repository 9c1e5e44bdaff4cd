"""The write rates of segments, from the load reports of the stores that serve them."""

from anabranch.common.contracts.queries import SegmentRate
from anabranch.common.model.cluster import PlacementState
from anabranch.common.model.hashing import container_of
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain.load import ServedSegment
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.projections.load_reports import LoadReports


class Rates:
    """Answers with the rates of segments by name."""

    def __init__(self, placements: Placements, reports: LoadReports, container_count: int) -> None:
        self._placements = placements
        self._reports = reports
        self._container_count = container_count

    def heard(self, segment: str) -> Heard | None:
        """The latest reports of the store that serves the segment; None: no store serves it."""
        container = container_of(segment, self._container_count)
        placement = self._placements.placements.get(container)
        if placement is None or placement.state is not PlacementState.OPEN:
            return None
        served = ServedSegment(segment, container, placement.container_epoch)
        reports, owner = self._reports, placement.owner
        return Heard(owner, reports.periods(owner), served, reports.keys(owner, served))

    def rate(self, segment: str) -> SegmentRate | None:
        """The segment's rate; None if unknown."""
        heard = self.heard(segment)
        found = None if heard is None else self._reports.rate(heard.node_id, heard.served)
        if found is None:
            return None
        return SegmentRate(
            events_per_s=found.events_per_s, bytes_per_s=found.bytes_per_s, over_ms=found.over_ms
        )
