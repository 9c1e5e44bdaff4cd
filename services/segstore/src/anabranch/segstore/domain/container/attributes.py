"""The arithmetic of a segment's attributes.

    change_attributes(attributes, updates) -> changes      decides, all or nothing
    apply_changes(attributes, changes) -> attributes       evolves

A change holds the value before and after, not the update that led to it. A replay therefore
recomputes nothing, and reports damage if a change does not follow the value before it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch.common.errors import (
    AttributeMismatch,
    CorruptJournal,
    InvalidRequest,
    TooManyAttributes,
)
from anabranch.common.tier2.state import Attributes
from anabranch.common.wire.messages import AttributeUpdate

ATTRIBUTE_ID_SIZE_BYTES = 16
ATTRIBUTES_MAX = 256
"""Of one segment, and of the updates in one request."""
VALUE_MIN, VALUE_MAX = -(2**63), 2**63 - 1

_REMOVING = ("replace", "replace-if-equals")


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """One attribute's value before and after; None is absent."""

    attribute: bytes
    before: int | None
    after: int | None


def change_attributes(
    attributes: Attributes, updates: Sequence[AttributeUpdate]
) -> tuple[AttributeChange, ...]:
    """The changes that the updates make, in their order.

    Raises InvalidRequest, AttributeMismatch (for the first update whose condition fails),
    TooManyAttributes.
    """
    if len(updates) > ATTRIBUTES_MAX or len({u.attribute for u in updates}) < len(updates):
        raise InvalidRequest(
            "a request updates an attribute twice, or too many attributes",
            updates=len(updates),
            limit=ATTRIBUTES_MAX,
        )
    changes = tuple(_change(attributes.get(update.attribute), update) for update in updates)
    added = sum((c.before is None) - (c.after is None) for c in changes)
    if added > 0 and len(attributes) + added > ATTRIBUTES_MAX:
        raise TooManyAttributes("the segment has too many attributes", limit=ATTRIBUTES_MAX)
    return changes


def _change(present: int | None, update: AttributeUpdate) -> AttributeChange:
    if len(update.attribute) != ATTRIBUTE_ID_SIZE_BYTES:
        raise InvalidRequest("an attribute's id has 16 bytes", size=len(update.attribute))
    if not _allows(present, update):
        raise AttributeMismatch(
            "the attribute's value forbids the update",
            attribute=update.attribute.hex(),
            kind=update.kind,
            present=present,
        )
    after = update.value
    if after is None:
        if update.kind not in _REMOVING:
            raise InvalidRequest("this kind of update needs a value", kind=update.kind)
    else:
        after = after + (present or 0) if update.kind == "accumulate" else after
        if not VALUE_MIN <= after <= VALUE_MAX:
            raise InvalidRequest(
                "an attribute is a signed 64-bit number", attribute=update.attribute.hex()
            )
    return AttributeChange(update.attribute, present, after)


def _allows(present: int | None, update: AttributeUpdate) -> bool:
    match update.kind:
        case "create":
            return present is None
        case "replace-if-greater":
            return present is None or update.value is None or update.value > present
        case "replace-if-equals":
            return present == update.expected
        case "replace" | "accumulate":
            return True


def apply_changes(attributes: Attributes, changes: Iterable[AttributeChange]) -> Attributes:
    """The attributes after the changes; the given mapping stays unchanged.

    Raises CorruptJournal if a change does not follow the value before it.
    """
    after = dict(attributes)
    for change in changes:
        if after.get(change.attribute) != change.before:
            raise CorruptJournal(
                "an attribute's change in the log does not follow its value",
                attribute=change.attribute.hex(),
            )
        if change.after is None:
            after.pop(change.attribute, None)
        else:
            after[change.attribute] = change.after
    return after
