"""What must be true of all that the readers of a soak have noted. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HandedOut:
    """One event as a reader noted it; `number` counts the events of its key from 0."""

    at_ns: int
    segment: str
    ownership: int
    key: str
    number: int


@dataclass(slots=True)
class Verdict:
    """`repeated`: events that were processed before. `violations`: promises that were broken."""

    events: int = 0
    repeated: int = 0
    violations: list[str] = field(default_factory=list)


def parse(lines: Iterable[str]) -> list[HandedOut]:
    """What is noted; the last line of a reader that was killed may be cut off."""
    found = []
    for line in lines:
        if line.endswith("\n"):
            at_ns, segment, ownership, key, number = line.split()
            found.append(HandedOut(int(at_ns), segment, int(ownership), key, int(number)))
    return found


def judge(handed_out: Iterable[HandedOut], written: Mapping[str, int]) -> Verdict:
    """`written`: how many events of each key are in the stream."""
    verdict = Verdict()
    in_time = sorted(handed_out, key=lambda each: each.at_ns)
    _every_event_in_order(in_time, written, verdict)
    _nobody_after_the_next_owner(in_time, verdict)
    return verdict


def _every_event_in_order(
    in_time: Iterable[HandedOut], written: Mapping[str, int], verdict: Verdict
) -> None:
    """By its first processing each key's event 0 comes first, then 1, and none is missing."""
    reached: dict[str, int] = defaultdict(int)
    for each in in_time:
        verdict.events += 1
        if each.number < reached[each.key]:
            verdict.repeated += 1
        elif each.number > reached[each.key]:
            verdict.violations.append(
                f"{each.key}: event {each.number} was processed before {reached[each.key]}"
            )
            reached[each.key] = each.number + 1
        else:
            reached[each.key] += 1
    for key, count in written.items():
        if reached[key] != count:
            verdict.violations.append(f"{key}: {reached[key]} events of {count} were processed")


def _nobody_after_the_next_owner(in_time: Iterable[HandedOut], verdict: Verdict) -> None:
    """Once an ownership of a segment handed out, older ones do not; but for one event, which a
    reader may have had in hand, and not noted yet, when it was stopped."""
    newest: dict[str, int] = {}
    late: dict[tuple[str, int], int] = defaultdict(int)
    for each in in_time:
        if each.ownership >= newest.get(each.segment, 0):
            newest[each.segment] = each.ownership
            continue
        late[each.segment, each.ownership] += 1
        if late[each.segment, each.ownership] == 2:
            verdict.violations.append(
                f"{each.segment}: ownership {each.ownership} went on after"
                f" {newest[each.segment]} had begun"
            )
