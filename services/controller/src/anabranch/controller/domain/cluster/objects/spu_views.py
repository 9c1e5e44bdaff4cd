"""SPUs as the assignment of replicas sees them. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from anabranch.common.model.cluster import REPLICATED
from anabranch.common.model.objects import Spu, SpuResolution
from anabranch.controller.domain.cluster.objects.assignment.values import Candidate, Refused

REMEDY = "start their stores with ANABRANCH_SEGSTORE_JOURNAL=replicated"


class SpuViews:
    """The registered SPUs, by id.

    `log_homes`: the place of each store's logs, by node id; a store that was not seen is missing.
    `drained`: node ids of stores that get no replicas.
    """

    def __init__(
        self, spus: Iterable[Spu], log_homes: Mapping[str, str], drained: Collection[str]
    ) -> None:
        self._spus = {
            spu.spec.spu_id: spu for spu in sorted(spus, key=lambda spu: spu.key, reverse=True)
        }
        self._log_homes = log_homes
        self._drained = drained

    @property
    def ids(self) -> Collection[int]:
        """The ids of all registered SPUs."""
        return self._spus.keys()

    def names_of(self, row: Sequence[int]) -> tuple[str, ...]:
        """The node ids of a row."""
        return tuple(self._spus[spu_id].key for spu_id in row)

    def able(self, replication_factor: int) -> list[Candidate] | Refused:
        """The SPUs that may get replicas of so many."""
        found = [
            spu
            for _, spu in sorted(self._spus.items())
            if not spu.deleting and spu.key not in self._drained
        ]
        if replication_factor > 1:
            copying = [spu for spu in found if self._may_copy(spu)]
            if len(copying) < replication_factor <= len(found):
                return Refused(
                    f"replication factor {replication_factor} needs as many spus with replicated "
                    f"logs, and {len(copying)} of {len(found)} have them: {REMEDY}"
                )
            found = copying if len(found) >= replication_factor else found
        return [
            Candidate(spu.spec.spu_id, spu.spec.rack, spu.status.resolution is SpuResolution.ONLINE)
            for spu in found
        ]

    def without_copies(self, rows: Iterable[Sequence[int]]) -> Refused | None:
        """Why the user's rows cannot be replicated; None if they can."""
        ids = {spu_id for row in rows if len(row) > 1 for spu_id in row}
        unable = sorted(spu_id for spu_id in ids if not self._may_copy(self._spus[spu_id]))
        if not unable:
            return None
        words = ", ".join(map(str, unable))
        return Refused(f"spus without replicated logs: {words}: {REMEDY}")

    def _may_copy(self, spu: Spu) -> bool:
        """Whether its logs are replicated, as far as known."""
        return self._log_homes.get(spu.key, REPLICATED) == REPLICATED
