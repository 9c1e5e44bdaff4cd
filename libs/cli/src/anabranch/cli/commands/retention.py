"""`anabranch stream retention`: a dry run of a stream's retention policy, and its releases."""

from anabranch.cli.admin import Fields
from anabranch.cli.client_session import Session
from anabranch.cli.figures import moment
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session

HOLDER_COLUMNS = ("group", "holds bytes")
RELEASE_COLUMNS = ("released", "bytes", "rule")
_HERE = Connection()

_PLANS = {
    "none": "the stream has no retention policy and keeps everything",
    "within_minimum": "nothing goes: nothing lies beyond the minimum",
    "held": "nothing goes: subscribers hold the events beyond the minimum",
    "minimum": "{} bytes go, which lie beyond the minimum",
    "consumption": "{} bytes go, which all subscribers have released; more lies beyond the minimum",
    "maximum": "{} bytes go, which lie beyond the maximum, although a subscriber wants them",
}


def retention(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Show the next release of a stream's retention policy, its holders, and earlier releases.

    Nothing is changed.
    """

    async def perform(session: Session, output: Output) -> None:
        found = await session.admin.retention(stream)
        if output.for_programs:
            output.done("", found)
            return
        output.details(f"retention of {stream}", _told(found))
        if found["holders"]:
            rows = [(one["subscriber"], str(one["bytes"])) for one in found["holders"]]
            output.rows(HOLDER_COLUMNS, rows, ())
        if found["releases"]:
            releases = [
                (moment(one["at_ms"]), str(one["bytes"]), one["rule"]) for one in found["releases"]
            ]
            output.rows(RELEASE_COLUMNS, releases, ())

    run_with_session(connection, perform)


def _told(found: Fields) -> dict[str, object]:
    """The first table for people."""
    rule = str(found["rule"])
    told: dict[str, object] = {"now": _PLANS.get(rule, rule).format(found["freed_bytes"])}
    if "next_ms" in found:
        told["next"] = f"at {moment(found['next_ms'])}, if no subscriber moves before"
    if "next_bytes" in found:
        told["next"] = f"after {found['next_bytes']} more bytes"
    told["kept_bytes"] = found["kept_bytes"]
    told["recorded_cuts"] = found["recorded_cuts"]
    if "oldest_ms" in found:
        told["first_recorded"] = moment(found["oldest_ms"])
    told["released_so_far"] = f"{found['released_bytes']} bytes, {found['release_count']} times"
    if "refusal" in found:
        told["refused"] = f"{moment(found['refused_ms'])}: {found['refusal']['message']}"
    return told
