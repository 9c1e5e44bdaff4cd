"""The command `anabranch doctor`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.doctor.checks import chosen
from anabranch.cli.doctor.examination import Examined, examine, has_failed
from anabranch.cli.doctor.place import Named, Place, data_dir_of, place_of, this_machine
from anabranch.cli.doctor.showing import show
from anabranch.cli.doctor.sight import sight_of
from anabranch.cli.doctor.sources.directory import Directory
from anabranch.cli.doctor.sources.directory import directory as content_of
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_async
from anabranch.common.runtime.clock import SystemClock

_HERE = Connection()


@Parameter(name="*")
@dataclass(frozen=True)
class Addresses:
    """Addresses that the data directory of an `anabranch up` names by itself."""

    nats_monitor: str = ""
    "URLs of the NATS servers' monitoring ports. [env: ANABRANCH_CONTROLLER_NATS_MONITOR_URL]"
    redis: str = ""
    "URL of Redis or Valkey. [env: ANABRANCH_CONTROLLER_REDIS_URL]"
    health: tuple[str, ...] = ()
    "URL of a service's health port; may be repeated."


_NAMED = Addresses()


def doctor(
    *checks: str,
    local: Annotated[bool, Parameter(negative="")] = False,
    directory: tuple[Path, ...] = (),
    addresses: Addresses = _NAMED,
    connection: Connection = _HERE,
) -> int:
    """Check this machine and the cluster: versions, disks, clocks, limits, settings, health.

    Ends with 1 if a check failed; warnings do not count. Nothing is changed.

    Parameters
    ----------
    checks
        Only the checks with these names; without names, all of them.
    local
        Check this machine only, for example before a cluster runs on it.
    directory
        A directory for tier 2 or a journal, for `network-directories`; may be repeated.
    """
    place = replace(find_place(connection, addresses, local=local), directories=directory)
    found = run_async(examined(place, checks))
    show(Output(connection.form), found)
    return 1 if has_failed(found) else 0


def find_place(connection: Connection, addresses: Addresses, *, local: bool = False) -> Place:
    """Where to look. Raises as `Connection.target`."""
    if local:
        return this_machine(connection.data_dir, os.environ)
    target = connection.target
    data_dir = data_dir_of(target, connection.data_dir)
    found = content_of(data_dir) if data_dir is not None else Directory()
    named = Named(addresses.nats_monitor, addresses.redis, addresses.health)
    return place_of(target, found, data_dir, named, os.environ)


async def examined(place: Place, names: Sequence[str] = ()) -> list[Examined]:
    """The findings of all checks, or of those with these names. Raises InvalidRequest."""
    clock = SystemClock()
    async with sight_of(place, os.environ, clock) as sight:
        return await examine(chosen(sight.checks, names), clock)
