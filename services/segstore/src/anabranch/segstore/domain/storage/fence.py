"""Decides which owner may write the next manifest, at an open and at a flush.

    open   the last manifest, if any, of a lower epoch, whose log is ours, closed (the owner
           before us released it, empty) or void → the fence manifest, one number above;
           its name taken meanwhile, or a higher manifest listed afterwards → again, above that one
    flush  its name taken, or any higher manifest listed afterwards → deposed
    delete any manifest above ours listed before each batch → deposed

This holds although old manifests are collected. Only a manifest below the `through` of a snapshot
is deleted, and the manifest that names the snapshot has a higher number. So the highest manifest is
never deleted before a higher one exists, and a list always shows the newest owner. (A list that
takes longer than `gc_grace` could miss both; every call has a far shorter limit.)

A fence counts once a list shows nothing above it. An older owner always writes the number after the
last one that it knows. From then on there are three cases: it finds the fence's name taken; or, if
the fence has been collected since, it creates a manifest at a number that is free again and then
finds a higher one in its list; or its last manifest is above the fence, and would have been in that
list. In no case does it release its log, change its catalog or count anything as garbage. A
manifest that it left below the newest snapshot is never read, and is collected like the others.

An owner may therefore delete the objects that its own committed manifests dropped: the state of
every successor continues from the last of them, and objects' names are never reused.
"""

from dataclasses import replace

from anabranch.common.errors import Deposed, LogNotHere, TierTwoNotHere
from anabranch.common.model.cluster import Abandonment, VoidLogs
from anabranch.common.tier2.manifest import Changes, LogBinding, Manifest


def decide_fence(
    last: Manifest | None, owner: Manifest, *, new_log: bool, void: VoidLogs | None = None
) -> Manifest:
    """The fence manifest to create after `last`.

    `owner` is the fence for an empty tier 2 (number 1). `new_log`: the placement names no log yet,
    so a first open finds an empty list. `void`: logs that need not be closed; if an operator gave
    one up, the fence records it.

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
    elsewhere = last.log.log_id != owner.log.log_id and not last.log.closed
    if elsewhere and not _is_void(last, void):
        raise LogNotHere(
            "the container's manifests continue in another log",
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
        abandoned=_abandonment(last, void) if elsewhere else last.abandoned,
    )


def _is_void(last: Manifest, void: VoidLogs | None) -> bool:
    return void is not None and void.after < last.container_epoch <= void.through


def _abandonment(last: Manifest, void: VoidLogs | None) -> Abandonment | None:
    """The fence's record of the log that it abandons; only the first such fence adds it."""
    if void is None or void.abandoned_ms == 0:
        return last.abandoned
    if last.abandoned is not None and last.abandoned.time_ms == void.abandoned_ms:
        return last.abandoned
    return Abandonment(last.log.log_id, last.applied_sequence, void.abandoned_ms)


def closing_manifest(last: Manifest) -> Manifest:
    """The last manifest of an owner that leaves: tier 2 has everything in its log."""
    return replace(
        last, number=last.number + 1, log=replace(last.log, closed=True), changes=Changes()
    )


def first_fence(container: int, container_epoch: int, nonce: bytes, log_id: str) -> Manifest:
    """The fence manifest of an owner if tier 2 is empty."""
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
