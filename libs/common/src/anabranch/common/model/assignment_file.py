"""The replica assignment file: JSON with the SPU ids of each partition, leader first. Pure.

Both of Fluvio's shapes are accepted::

    [{"id": 0, "replicas": [5001, 5002]}, {"id": 1, "replicas": [5002, 5001]}]
    {"partitions": [{"id": 0, "replicas": [5001, 5002]}]}

The controller checks the rows; here only their form is checked.
"""

import msgspec

from anabranch.common.errors import InvalidTopic
from anabranch.common.model.objects import Assigned, AssignedPartition


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    replicas: tuple[int, ...]


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    partitions: list[_Row]


def assigned_from_json(data: bytes | str) -> Assigned:
    """The assignment in the file. Raises InvalidTopic."""
    raw = data.encode() if isinstance(data, str) else data
    kind: type[_Wrapped] | type[list[_Row]] = (
        _Wrapped if raw.lstrip().startswith(b"{") else list[_Row]
    )
    try:
        found = msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = f"error reading replica assignment: {error}"
        raise InvalidTopic(
            why,
            remedy='write a list of rows such as {"id": 0, "replicas": [5001, 5002]}',
            why=why,
        ) from error
    rows = found.partitions if isinstance(found, _Wrapped) else found
    return Assigned(tuple(AssignedPartition(row.id, row.replicas) for row in rows))
