"""Decides which copies a store keeps. Pure."""

from anabranch.common.model.cluster import LogCopy, Placement


def is_void(own: LogCopy, log_id: str, placement: Placement, *, dropped: bool) -> bool:
    """Whether a store may remove its copy of a container's log.

    A copy in the ISR always stays. Another one goes if its store is not a replica, if the placement
    names another log, or if the store *dropped* the copy because it held up the journal.
    """
    if own in placement.isr:
        return False
    other_log = bool(placement.log_id) and placement.log_id != log_id
    return dropped or other_log or own.node_id not in placement.replicas


def is_candidate(node_id: str, log_id: str, placement: Placement, *, dropped: bool) -> bool:
    """Whether the store reads the placement anew, because its copy of `log_id` may be void."""
    other_log = bool(placement.log_id) and placement.log_id != log_id
    return dropped or other_log or node_id not in placement.replicas
