"""Plans the cut of a damaged journal after which a store can open it again.

The longest intact beginning of the journal stays: files in the order of their chain, up to the
first byte that cannot be trusted. From there on frames no longer prove that they follow one
another, so all later bytes are given up. The plan reports the frames that are still readable among
them, and the number of unreadable bytes.

    a header is unusable, a file is missing     that file and all later ones are set aside
    a frame is damaged                          its file is cut before it, later ones set aside
    a file is of another journal                it is set aside alone
    no file is usable                           all are set aside: the logs are empty then
    the oldest known file is missing            all are set aside: their predecessors are gone
    the newest known file is missing            nothing: the rest is intact and continues
    the last write is torn                      nothing: an open leaves it out by itself

If a set-aside file alone recorded the end of its predecessor, operations that a deposed owner wrote
after that end, and never acknowledged, may count again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.common.errors import CorruptJournal, JournalFileMissing
from anabranch.segstore.domain.log.chain import Chain, KnownFiles, chain_files, check_complete
from anabranch.segstore.domain.log.formats import (
    FILE_HEADER_SIZE_BYTES,
    FileHeader,
    Frame,
    parse_file_header,
)
from anabranch.segstore.domain.log.scan import read_prefix, scan_file, valid_frames

ReadFile = Callable[[int], bytes]
"""A journal file's whole content, by its id."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Zeros from `position` on, up to `size` bytes; earlier bytes stay."""

    file_id: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LostOperations:
    """Operations of a container that are readable after the damage, and are given up."""

    container: int
    first_sequence: int
    last_sequence: int
    frames: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes that are given up and hold no valid frame, so that their contents are unknown."""

    file_id: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The faults, the changes, and the losses that they cause.

    `faults` is empty if a store opens the journal as it is; `set_aside` descends. `missing`: a
    recorded file that does not exist, with unknown contents. `kept`: the containers with frames in
    the files that stay, and their highest epochs. `copies`: the containers of which the journal
    holds a copy of a replicated log, whose frames are numbered by the copy.
    """

    faults: tuple[str, ...] = ()
    cut: Cut | None = None
    set_aside: tuple[int, ...] = ()
    lost: tuple[LostOperations, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    missing: str = ""
    kept: Mapping[int, int] = field(default_factory=dict, compare=False)
    copies: frozenset[int] = frozenset()


def plan_repair(
    file_ids: Iterable[int], read: ReadFile, journal_id: str, known: KnownFiles | None
) -> RepairPlan:
    """The plan for the journal files of these ids. Raises FormatTooNew."""
    every = sorted(file_ids)
    faults: list[str] = []
    headers = _usable_headers(every, read, journal_id, faults)
    chain = _longest_chain(headers, journal_id, faults)
    missing = ""
    if not faults:  # after another fault, recorded files are missing from the chain anyway
        chain, missing = _known_chain(chain, known, faults)
    kept: dict[int, int] = {}
    cut = None
    for place, (header, end) in enumerate(chain.files):
        data = read(header.file_id)
        try:
            frames = scan_file(data, header, end).frames
        except CorruptJournal as error:
            faults.append(str(error))
            frames, good = read_prefix(data, header, end.offset if end else len(data))
            cut = Cut(header.file_id, good.offset, max(len(data), header.size))
            chain = Chain(chain.files[: place + 1], chain.orphans)
        for frame in frames:
            kept[frame.container] = max(kept.get(frame.container, 0), frame.container_epoch)
        if cut is not None:
            break
    if not faults:
        return RepairPlan(kept=kept)
    newest = chain.files[-1][0].file_id if chain.files else 0
    set_aside = tuple(i for i in reversed(every) if i > newest or i not in headers)
    lost, unreadable = _given_up(read, cut, set_aside)
    return RepairPlan(tuple(faults), cut, set_aside, lost, unreadable, missing, kept)


def _known_chain(chain: Chain, known: KnownFiles | None, faults: list[str]) -> tuple[Chain, str]:
    """The part of the chain that stays, and the name of a file that it lacks, or ""."""
    try:
        check_complete(chain, known)
    except JournalFileMissing as error:
        faults.append(str(error))
        oldest = chain.files[0][0].file_id if chain.files else 0
        behind_a_gap = known is not None and oldest > known.oldest
        return Chain((), ()) if behind_a_gap else chain, str(error.fields["file"])
    return chain, ""


def _usable_headers(
    file_ids: list[int], read: ReadFile, journal_id: str, faults: list[str]
) -> dict[int, FileHeader]:
    """The headers before the first unusable one, without files of other journals."""
    headers: dict[int, FileHeader] = {}
    for file_id in file_ids:
        name = f"{file_id:016x}"
        try:
            header = parse_file_header(read(file_id)[:FILE_HEADER_SIZE_BYTES], name)
            if header.file_id != file_id:
                raise CorruptJournal("a journal file has the name of another file", file=name)
        except CorruptJournal as error:
            faults.append(str(error))
            return headers
        if header.journal_id == journal_id:
            headers[file_id] = header
        else:
            faults.append(f"a file of another journal lies in the directory (file={name})")
    return headers


def _longest_chain(headers: Mapping[int, FileHeader], journal_id: str, faults: list[str]) -> Chain:
    """The longest chain of the oldest files."""
    kept = sorted(headers)
    while kept:
        try:
            return chain_files((headers[file_id] for file_id in kept), journal_id)
        except CorruptJournal as error:
            faults.append(str(error))
            kept.pop()
    return Chain((), ())


def _given_up(
    read: ReadFile, cut: Cut | None, set_aside: tuple[int, ...]
) -> tuple[tuple[LostOperations, ...], tuple[Unreadable, ...]]:
    places = [(cut.file_id, cut.position)] if cut is not None else []
    places += [(file_id, FILE_HEADER_SIZE_BYTES) for file_id in reversed(set_aside)]
    lost: dict[int, LostOperations] = {}
    unreadable: list[Unreadable] = []
    for file_id, position in places:
        data = read(file_id)
        at = position
        for frame in valid_frames(data, file_id, position):
            lost[frame.container] = _with(lost.get(frame.container), frame)
            if frame.position > at:
                unreadable.append(Unreadable(file_id, at, frame.position - at))
            at = frame.end
        rest = len(data[at:].rstrip(b"\0"))
        if rest:
            unreadable.append(Unreadable(file_id, at, rest))
    return tuple(lost[container] for container in sorted(lost)), tuple(unreadable)


def _with(before: LostOperations | None, frame: Frame) -> LostOperations:
    if before is None:
        return LostOperations(
            frame.container, frame.first_sequence, frame.last_sequence, 1, frame.payload_size
        )
    return LostOperations(
        frame.container,
        min(before.first_sequence, frame.first_sequence),
        max(before.last_sequence, frame.last_sequence),
        before.frames + 1,
        before.size_bytes + frame.payload_size,
    )
