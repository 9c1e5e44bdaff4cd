"""Counting the faults that simulated disks really had, whoever planned them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from errno import errorcode
from unittest.mock import patch

from anabranch.common.errors import DiskFailed
from kit.simdisk import SimDisk, Survival, _Call

KILLED = "killed at a disk call"
POWER_LOST = "disks that lost power"
FAILED = "failed disk calls"


@contextmanager
def counted_faults() -> Iterator[Counter[str]]:
    """What happens to simulated disks inside the block, by kind; complete when it ends."""
    counts: Counter[str] = Counter()
    die, power_loss, failure = SimDisk.die, SimDisk.power_loss, _Call.failure

    def counted_death(self: SimDisk) -> None:
        counts[KILLED] += 1
        die(self)

    def counted_loss(self: SimDisk, survival: Survival) -> None:
        counts[POWER_LOST] += 1
        power_loss(self, survival)

    def counted_failure(self: _Call) -> DiskFailed:
        counts[f"{FAILED} ({errorcode[self.error]})"] += 1
        return failure(self)

    with (
        patch.object(SimDisk, "die", counted_death),
        patch.object(SimDisk, "power_loss", counted_loss),
        patch.object(_Call, "failure", counted_failure),
    ):
        yield counts
