"""The log lines about members: which came, which went, and why the controller holds."""

import structlog

from anabranch.controller.domain.cluster.liveness import Hold, Member, Standing

_log = structlog.get_logger(__name__)


def outline(standing: Standing | None) -> tuple[str, str, bool] | None:
    """The parts of a standing whose changes concern listeners; beats do not."""
    if standing is None:
        return None
    return standing.verdict.value, standing.seen.session, standing.seen.over


def log_change(member: Member, before: Standing | None, after: Standing | None) -> None:
    """Log that a member came, went, or lost its session."""
    told = {"kind": member.kind.value, "member": member.member_id}
    if after is not None and after.seen.over:
        _log.info("the session of a member is over", **told, session=after.seen.session)
    elif after is None or after.seen.stopped:
        if before is not None and before.live:
            _log.info("a member of the cluster has stopped", **told)
    elif before is None or not before.live or before.seen.session != after.seen.session:
        _log.info("a member of the cluster is live", **told, session=after.seen.session)


def log_hold(hold: Hold | None) -> None:
    """Log that a hold begins, changes or ends."""
    if hold is None:
        _log.info("the hold has ended")
        return
    _log.warning(
        "the controller holds: it judges no member and moves no container",
        blind=hold.blind,
        missing=sorted(member.member_id for member in hold.missing),
        remedy="wait until NATS answers and the members are back; if they are lost, run "
        "`anabranch cluster confirm-losses`",
    )
