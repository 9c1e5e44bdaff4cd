"""How the scenarios of the controller write the fields of commands."""

from collections.abc import Iterable, Mapping

from anabranch.common.model.names import SegmentId, epoch_of, number_of, segment_id
from anabranch.common.model.stream import FUTURE_OFFSET
from anabranch.controller.domain.operations import Operations


def told(segment: SegmentId) -> str:
    """``epoch.number``"""
    return f"{epoch_of(segment)}.{number_of(segment)}"


def parsed(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a command as a caller would send them.

    ``seal=0.0,0.1``   ids of segments
    ``ranges=0-0.5,0.5-1``   new ranges; none: ``ranges=``
    ``cut=0.0:10,1.2:future``   segments with offsets, and a third number for an event's index
    ``containers=1024,1025``   the containers of a topic's segments
    ``min=2 rate=5 tags=a,b``   a configuration; with a rate, scaled by events per second
    """
    found = dict(fields)
    if "seal" in found:
        found["seal"] = [_segment(word) for word in _words(found.pop("seal"))]
    if "ranges" in found:
        bounds = [word.split("-") for word in _words(found.pop("ranges"))]
        found["new_ranges"] = [{"key_start": low, "key_end": high} for low, high in bounds]
    if "cut" in found:
        found["cut"] = cut_of(_words(found.pop("cut")))
    if "containers" in found:
        found["containers"] = _words(found.pop("containers"))
    if "min" in found:
        found["config"] = _config(found.pop("min"), found.pop("rate", 0), found.pop("tags", ""))
    return found


def cut_of(words: Iterable[str]) -> list[dict[str, object]]:
    """Of words ``segment:offset`` or ``segment:offset:index``."""
    found = []
    for name, at, *index in (word.split(":") for word in words):
        place: dict[str, object] = {
            "segment_id": _segment(name),
            "offset": FUTURE_OFFSET if at == "future" else at,
        }
        found.append(place | ({"event_index": index[0]} if index else {}))
    return found


def shown(operations: Operations) -> str:
    """The last word of every outcome."""
    marks = {"running": "…", "succeeded": "+", "failed": "-"}
    return "operations=" + ",".join(o.operation + marks[o.state] for o in operations)


def _config(minimum: object, rate: object, tags: object) -> dict[str, object]:
    scaling: dict[str, object] = {"min_segments": minimum}
    if rate:
        scaling |= {"type": "event_rate", "target_rate": rate, "scale_factor": 2}
    return {"scaling": scaling, "tags": _words(tags)}


def _words(text: object) -> list[str]:
    return [word for word in str(text).split(",") if word]


def _segment(text: str) -> SegmentId:
    epoch, number = text.split(".")
    return segment_id(int(epoch), int(number))
