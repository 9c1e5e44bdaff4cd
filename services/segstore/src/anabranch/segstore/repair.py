"""``python -m anabranch.segstore.repair DIRECTORY [--tier2 URL] [--yes]``: mend a stopped journal.

Prints JSON lines: each fault, each file that is cut or set aside, each range of operations that is
lost by this, as far as it can be determined, and whether tier 2 has them. Without ``--yes`` it
changes nothing. The exit code is 0 if no repair is needed or the repair is done, and 1 if a repair
is needed or impossible.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
from anabranch.common.adapters.local_disk import LocalDisk, lock_directory
from anabranch.common.errors import AnabranchError, DirectoryUnusable, TierTwoNotHere
from anabranch.common.storage.audit import read_catalog
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.mending import perform_repair, planned_repair
from anabranch.segstore.domain.log.repair import RepairPlan

CALL_S_MAX = 60.0

Line = dict[str, object]


def journal_in(directory: Path) -> LocalDisk:
    """The journal in this directory, or in this data directory of a store. Raises
    DirectoryUnusable."""
    for root in (directory, directory / "journal"):
        disk = LocalDisk(root.resolve())
        if disk.exists(layout.FORMAT_FILE) or disk.exists(layout.LOGS):
            return disk
    raise DirectoryUnusable(
        "the directory holds no journal",
        remedy="name a segment store's data directory, or the folder journal in it",
        path=str(directory),
    )


async def tiered_sequences(url: str, containers: Iterable[int]) -> dict[int, int]:
    """By container, the sequence number up to which tier 2 has every operation; 0 for a
    container that tier 2 does not know. Raises the errors of reading a catalog."""
    storage = await open_chunk_storage_read_only(url, limit_s=CALL_S_MAX)
    reached: dict[int, int] = {}
    for container in containers:
        try:
            reached[container] = (await read_catalog(storage, container)).catalog.applied_sequence
        except TierTwoNotHere:
            reached[container] = 0
    return reached


def lines_of(plan: RepairPlan, tiered: Mapping[int, int] | None) -> Iterator[Line]:
    """The lines that are printed for the plan. `tiered` is None if tier 2 was not asked."""
    for fault in plan.faults:
        yield {"fault": fault}
    if plan.missing:
        name = f"{layout.JOURNAL}{plan.missing}"
        yield {
            "given_up": name,
            "lost": "everything that only this file held, which cannot be determined",
        }
    if plan.cut is not None:
        name = layout.journal_file(plan.cut.file_id)
        yield {"cut": name, "from_byte": plan.cut.position}
    for file_id in plan.set_aside:
        yield {"set_aside": layout.journal_file(file_id)}
    for lost in plan.lost:
        if lost.container in plan.copies:
            yield {"lost_copy": lost.container, "frames": lost.frames, "bytes": lost.size_bytes}
            continue
        line: Line = {
            "lost_container": lost.container,
            "first_sequence": lost.first_sequence,
            "last_sequence": lost.last_sequence,
            "frames": lost.frames,
            "bytes": lost.size_bytes,
        }
        if tiered is not None:
            reached = tiered[lost.container]
            line["tier2_has_through"] = reached
            line["lost_for_good"] = max(
                0, lost.last_sequence - max(reached, lost.first_sequence - 1)
            )
        yield line
    for rest in plan.unreadable:
        name = layout.journal_file(rest.file_id)
        yield {"unreadable": name, "position": rest.position, "bytes": rest.size}


def repair(directory: Path, tier2_url: str, *, yes: bool) -> Iterator[Line]:
    """Plan the repair, and perform it if `yes`. Yields the lines to print, the result last.

    Raises DirectoryUnusable, DirectoryInUse (a store runs there), CorruptJournal (beyond repair),
    DiskFailed.
    """
    disk = journal_in(directory)
    lock = lock_directory(disk.root)
    try:
        plan = planned_repair(disk)
        tiered = None
        if tier2_url:
            own = (one.container for one in plan.lost if one.container not in plan.copies)
            tiered = asyncio.run(tiered_sequences(tier2_url, own))
        yield from lines_of(plan, tiered)
        if not plan.faults:
            yield {"repair": "nothing to do"}
        elif not yes:
            yield {"repair": "nothing changed", "remedy": "repeat with --yes to perform this"}
        else:
            folder = perform_repair(disk, plan)
            yield {"repair": "done", "kept_in": f"{disk.root}/{folder}"}
    finally:
        lock.release()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m anabranch.segstore.repair")
    parser.add_argument("directory", type=Path, help="a stopped segment store's data directory")
    parser.add_argument("--tier2", default="", help="URL of tier 2, to compare its contents")
    parser.add_argument("--yes", action="store_true", help="do it")
    options = parser.parse_args()
    last: Line = {}
    try:
        for last in repair(options.directory, options.tier2, yes=options.yes):
            sys.stdout.write(json.dumps(last) + "\n")
    except AnabranchError as error:
        sys.stderr.write(json.dumps({"error": error.to_body("command")}) + "\n")
        return 1
    return 1 if last["repair"] == "nothing changed" else 0


if __name__ == "__main__":
    sys.exit(main())
