"""Changes of stored objects, as controllers ask their dispatchers for them. Pure values.

Each action names the object as the decision saw it. It is performed only if the stored object still
has that revision, and a reducer returns at most one action per object; so the result of an action
is the object that the decision expected, or no change at all.

`after` is all that a dispatcher needs: the object to store, or None to delete it.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from anabranch.common.contracts.objects import ObjectKind
from anabranch.common.model.objects import ClusterObject

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Apply(Generic[S, T]):
    """Create the object; refused if one with its key exists."""

    kind: ObjectKind[S, T]
    object: ClusterObject[S, T]

    @property
    def after(self) -> ClusterObject[S, T] | None:
        return self.object


@dataclass(frozen=True, slots=True)
class UpdateSpec(Generic[S, T]):
    """Replace the spec, and the status with it unless `status` is None."""

    kind: ObjectKind[S, T]
    object: ClusterObject[S, T]
    spec: S
    status: T | None = None

    @property
    def after(self) -> ClusterObject[S, T] | None:
        status = self.object.status if self.status is None else self.status
        return replace(self.object, spec=self.spec, status=status)


@dataclass(frozen=True, slots=True)
class UpdateStatus(Generic[S, T]):
    """Replace the status."""

    kind: ObjectKind[S, T]
    object: ClusterObject[S, T]
    status: T

    @property
    def after(self) -> ClusterObject[S, T] | None:
        return replace(self.object, status=self.status)


@dataclass(frozen=True, slots=True)
class MarkDeleting(Generic[S, T]):
    """Note that the object is to be deleted; its controller deletes it once nothing needs it."""

    kind: ObjectKind[S, T]
    object: ClusterObject[S, T]

    @property
    def after(self) -> ClusterObject[S, T] | None:
        return replace(self.object, deleting=True)


@dataclass(frozen=True, slots=True)
class DeleteFinal(Generic[S, T]):
    """Delete the object."""

    kind: ObjectKind[S, T]
    object: ClusterObject[S, T]

    @property
    def after(self) -> ClusterObject[S, T] | None:
        return None


Action = (
    Apply[Any, Any]
    | UpdateSpec[Any, Any]
    | UpdateStatus[Any, Any]
    | MarkDeleting[Any, Any]
    | DeleteFinal[Any, Any]
)
