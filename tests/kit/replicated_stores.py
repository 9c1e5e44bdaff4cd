"""What stores with replicated logs make of placements, in a simulated cluster: copies and ISRs.

Copies hold no messages: each opening gives the copies in sync one message more.
"""

from collections.abc import Sequence
from dataclasses import replace

from anabranch.common.model.cluster import REPLICATED, LogCopy, Placement, PlacementState
from anabranch.controller.domain.cluster.election import CopyEnd
from anabranch.segstore.shell.node.placements import handed_over, hands_over
from kit.candidates import KnownCopies, KnownCopy


def open_replicated(copies: KnownCopies, found: Placement, node: str) -> Placement:
    """What the owner `node` makes of a placement: it hands the container over, or opens it.

    A store whose copy is not in the ISR asks for an election.
    """
    if found.owner != node or found.state is PlacementState.ELECTING:
        return found
    if found.target:
        assert hands_over(found), "a replicated log goes to an in-sync replica only"
        return handed_over(found)
    epoch = found.container_epoch + 1
    log_id = found.log_id or f"log-{found.container}-{epoch}"
    known = copies.copies.get((node, found.container))
    if found.log_id and (known is None or known.copy not in found.isr):
        return replace(found, container_epoch=epoch + 1, state=PlacementState.ELECTING, restarts=1)
    if known is None or known.log_id != log_id:
        known = _new_copy(copies, node, found.container, log_id)
    return replace(
        found, container_epoch=epoch, log_id=log_id, log_home=REPLICATED,
        state=PlacementState.OPEN, isr=found.isr if found.log_id else (known.copy,),
    )  # fmt: skip


def synced(copies: KnownCopies, found: Placement, alive: Sequence[str]) -> tuple[LogCopy, ...]:
    """The ISR of a container that is open: the copies of the replicas that are alive, which have
    the opening now. A replica without a copy of this log gets one."""
    isr: list[LogCopy] = []
    for node in alive:
        known = copies.copies.get((node, found.container))
        if known is None or known.log_id != found.log_id:
            known = _new_copy(copies, node, found.container, found.log_id)
        known.end = CopyEnd(found.container_epoch, 0, 0)
        isr.append(known.copy)
    return tuple(isr)


def _new_copy(copies: KnownCopies, node: str, container: int, log_id: str) -> KnownCopy:
    copies.lives += 1
    copies.put(node, container, epoch=0, number=0, life=copies.lives)
    known = copies.copies[node, container]
    known.log_id = log_id
    return known
