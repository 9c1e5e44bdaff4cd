"""The command `anabranch stream explain`: why a stream scales, does not, or will."""

from collections.abc import Iterator

from anabranch.cli.admin import Fields
from anabranch.cli.client_session import Session
from anabranch.cli.figures import counted, moment
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session

COLUMNS = ("id", "keys", "found", "since", "why")
STATUS = {
    "fixed": "its scaling policy has a fixed number of segments; nothing scales it but a command",
    "off": "auto-scaling is switched off: ANABRANCH_CONTROLLER_SCALING is off",
    "unwatched": "no controller has looked at it yet; ask again in some seconds",
}
_HERE = Connection()


def explain(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Explain auto-scaling: rates, thresholds, times, missing reports, and the last decision.

    A segment is *hot*, *cold*, *steady*, *unknown* (reports of its load are missing), or a
    *hot_key*: one routing key has its load, so that a split does not help.
    """

    async def perform(session: Session, output: Output) -> None:
        found = await session.admin.explain(stream)
        if output.for_programs:
            output.done("", {"stream": stream, **found})
            return
        for line in told(stream, found):
            output.done(line, {})
        if found["segments"]:
            output.rows(COLUMNS, [_row(one) for one in found["segments"]], ())

    run_with_session(connection, perform)


def told(stream: str, found: Fields) -> Iterator[str]:
    """The lines above the table."""
    if found["status"] != "watched":
        yield f"{stream}: {STATUS.get(found['status'], found['status'])}"
        return
    count = counted(len(found["segments"]), "segment")
    unit = found["unit"]
    yield (
        f"{stream}: {count} at epoch {found['stream_epoch']}, target {found['target']} {unit} per "
        f"segment, as controller {found['controller']} found at {moment(found['looked_ms'])}"
    )
    limits = found["thresholds"]
    hot = ", ".join(f"{rule['rate']:g} over {rule['window_s']:g} s" for rule in limits["hot"])
    yield (
        f"hot above {hot}; cold below {limits['cold_below']:g} over {limits['cold_s']:g} s; "
        f"merged below {limits['merged_below']:g} together, down to {limits['segment_count_min']}"
    )
    yield f"now: {found['present']['action']}: {found['present']['why']}"
    last = found.get("last")
    if last:
        error = f" ({last['error']})" if last["error"] else ""
        yield (
            f"last: {last['action']} at {moment(last['at_ms'])}, {last['outcome']}{error}: "
            f"{last['why']}"
        )


def _row(one: Fields) -> tuple[str, ...]:
    """Same order as `COLUMNS`."""
    since_ms = one.get("hot_since_ms") or one.get("cold_since_ms")
    waits_ms = max(one["cooldown_ms"], one["muted_ms"])
    waits = f"; left alone for another {waits_ms / 1000:.0f} s" if waits_ms else ""
    return (
        str(one["segment_id"]),
        f"{one['key_start']:.6g} – {one['key_end']:.6g}",
        one["verdict"],
        moment(since_ms) if since_ms else "",
        one["why"] + waits,
    )
