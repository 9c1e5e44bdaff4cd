"""Who may write the next manifest: the decisions of an open and of a flush.

    open   the last manifest, if any, of a lower epoch → the fence manifest, one number above;
           its name taken meanwhile by a lower epoch → again, above that one
    flush  its name taken, or any higher manifest listed afterwards → deposed

A number can be created once only, and an owner always writes the number after the last one it
knows. So from the moment a fence manifest exists, an older owner meets a taken name, or (where
old manifests have been collected) a higher number in the list that it takes afterwards.
"""

from anabranch.common.errors import Deposed, LogNotHere, TierTwoNotHere
from anabranch.common.tier2.manifest import LogBinding, Manifest


def decide_fence(last: Manifest | None, owner: Manifest, *, new_log: bool) -> Manifest:
    """The fence manifest to create after `last`.

    `owner` is the fence as it would be for an empty tier 2 (number 1). `new_log`: the placement
    names no log yet, so an empty list is what a first open finds.
    Raises Deposed, LogNotHere, TierTwoNotHere.
    """
    if last is None:
        if not new_log:
            raise TierTwoNotHere(
                "tier 2 lists no manifest of a container that has a log",
                container=owner.container, log_id=owner.log.log_id,
            )  # fmt: skip
        return owner
    if last.container_epoch >= owner.container_epoch:
        raise deposed_by(last, owner.container_epoch)
    if last.log.log_id != owner.log.log_id and not last.log.closed:
        raise LogNotHere(
            "the container's manifests go on in another log",
            container=owner.container, log_id=owner.log.log_id, found=last.log.log_id,
        )  # fmt: skip
    return Manifest(
        container=owner.container,
        number=last.number + 1,
        container_epoch=owner.container_epoch,
        nonce=owner.nonce,
        log=owner.log,
        applied_sequence=last.applied_sequence,
        snapshot=last.snapshot,
    )


def first_fence(container: int, container_epoch: int, nonce: bytes, log_id: str) -> Manifest:
    """The fence manifest of an owner where tier 2 is empty."""
    return Manifest(
        container=container,
        number=1,
        container_epoch=container_epoch,
        nonce=nonce,
        log=LogBinding(log_id),
        applied_sequence=0,
    )


def deposed_by(found: Manifest, container_epoch: int) -> Deposed:
    return Deposed(
        "a newer owner has written to tier 2",
        container=found.container, container_epoch=container_epoch,
        found_epoch=found.container_epoch, manifest=found.number,
    )  # fmt: skip
