"""The SPU group controller's decisions. Pure and level-triggered.

A group with `replicas` n and `min_id` m owns the SPUs ``<group>-0`` … with the ids m … m + n − 1::

    init, invalid  ── no id is taken ──►  reserved  ── next pass ──►  the missing SPUs are created
    any            ── an id is taken ──►  invalid, reason "conflict with: <id>"

The ids are checked in every pass, so also when the group grows. An id is taken by an SPU that the
group does not own, or by the range of a group that has reserved it first. No SPU is created while
the group is not reserved in the store, and therefore two groups never create one id.

When the group shrinks or is deleted, its SPUs beyond the range are, each as soon as it can::

    marked for deletion ─► drained ─► deleted once it holds no replica

An SPU whose group is gone is treated like one of a deleted group. A drain mark that an earlier SPU
of the same name left is removed before the SPU is created again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.common.contracts.objects import SPU, SPU_GROUP
from anabranch.common.model.objects import (
    ClusterObject,
    Spu,
    SpuGroup,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    SpuType,
)
from anabranch.controller.domain.cluster.objects.actions import (
    Action,
    Apply,
    DeleteFinal,
    MarkDeleting,
    UpdateStatus,
)


@dataclass(frozen=True, slots=True)
class Drain:
    """Mark the node as drained, so that its containers move away and none comes."""

    node: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """Remove the node's drain mark."""

    node: str


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """`actions`: at most one per object. `drains`: drain marks to set and to remove."""

    actions: tuple[Action, ...] = ()
    drains: tuple[Drain | Undrain, ...] = ()


@dataclass(frozen=True, slots=True)
class _World:
    """`taken`: the owners of each id; "" for custom SPUs. It grows with every reserved group."""

    spus: Mapping[str, Spu]
    children: Mapping[str, Sequence[Spu]]
    taken: dict[int, set[str]]
    holding: Callable[[str], bool]
    drained: Collection[str]
    actions: list[Action] = field(default_factory=list)
    drains: list[Drain | Undrain] = field(default_factory=list)


def reduce(
    groups: Iterable[SpuGroup],
    spus: Iterable[Spu],
    holding: Callable[[str], bool],
    drained: Collection[str],
) -> GroupPlan:
    """The due changes of the groups and of the SPUs that they own.

    `holding`: whether the store of this node id holds replicas or containers. `drained`: the node
    ids with a drain mark.
    """
    by_name = {spu.key: spu for spu in spus}
    children: dict[str, list[Spu]] = defaultdict(list)
    for spu in by_name.values():
        if spu.spec.type is SpuType.MANAGED:
            children[spu.owner].append(spu)
    taken: dict[int, set[str]] = defaultdict(set)
    for spu in by_name.values():
        taken[spu.spec.spu_id].add(spu.owner)
    world = _World(by_name, children, taken, holding, drained)
    found = sorted(groups, key=_order)
    for group in found:
        _reduce_group(group, world)
    names = {group.key for group in found}
    for owner in sorted(children.keys() - names):
        _retire(children[owner], world)
    return GroupPlan(tuple(world.actions), tuple(world.drains))


def ids_of(spec: SpuGroupSpec) -> range:
    """The ids of a group's SPUs."""
    return range(spec.min_id, spec.min_id + spec.replicas)


def child_name(group: str, index: int) -> str:
    """The name of a group's SPU, which is the node id of its store."""
    return f"{group}-{index}"


def _order(group: SpuGroup) -> tuple[bool, str]:
    """Groups that hold a reservation come first; a later one cannot take their ids."""
    return group.status.resolution is not SpuGroupResolution.RESERVED, group.key


def _reduce_group(group: SpuGroup, world: _World) -> None:
    children = world.children.get(group.key, ())
    if group.deleting:
        _retire(children, world)
        if not children:
            world.actions.append(DeleteFinal(SPU_GROUP, group))
            return
        _set_status(group, _retiring(group, children), world)
        return
    conflict = _conflict_of(group, world)
    if conflict is not None:
        reason = f"conflict with: {conflict}"
        _set_status(group, SpuGroupStatus(SpuGroupResolution.INVALID, reason), world)
        _retire([spu for spu in children if spu.deleting], world)
        return
    for spu_id in ids_of(group.spec):
        world.taken[spu_id].add(group.key)
    surplus = [spu for spu in children if spu.deleting or not _is_wanted(spu, group)]
    _retire(surplus, world)
    _set_status(group, _retiring(group, surplus), world)
    if group.status.resolution is SpuGroupResolution.RESERVED:
        _create_missing(group, world)


def _conflict_of(group: SpuGroup, world: _World) -> int | None:
    """The first id of the group that another one has, or whose SPU's name another one has."""
    for index, spu_id in enumerate(ids_of(group.spec)):
        namesake = world.spus.get(child_name(group.key, index))
        if world.taken[spu_id] - {group.key}:
            return spu_id
        if namesake is not None and namesake.owner != group.key:
            return namesake.spec.spu_id
    return None


def _is_wanted(spu: Spu, group: SpuGroup) -> bool:
    index = spu.spec.spu_id - group.spec.min_id
    return 0 <= index < group.spec.replicas and spu.key == child_name(group.key, index)


def _create_missing(group: SpuGroup, world: _World) -> None:
    for index, spu_id in enumerate(ids_of(group.spec)):
        name = child_name(group.key, index)
        if name in world.spus:
            continue
        if name in world.drained:
            world.drains.append(Undrain(name))
            continue
        spec = SpuSpec(
            spu_id,
            SpuType.MANAGED,
            rack=group.spec.rack,
            storage_size_bytes=group.spec.storage_size_bytes,
        )
        child = ClusterObject(name, spec, SpuStatus(), owner=group.key)
        world.actions.append(Apply(SPU, child))


def _retire(spus: Iterable[Spu], world: _World) -> None:
    """The next step of each SPU that is to go, the highest id first."""
    for spu in sorted(spus, key=lambda spu: -spu.spec.spu_id):
        if spu.key not in world.drained:
            world.drains.append(Drain(spu.key))
        if not spu.deleting:
            world.actions.append(MarkDeleting(SPU, spu))
        elif spu.key in world.drained and not world.holding(spu.key):
            world.actions.append(DeleteFinal(SPU, spu))


def _retiring(group: SpuGroup, spus: Sequence[Spu]) -> SpuGroupStatus:
    """Reserved, and which SPUs have to go first."""
    ids = ", ".join(_ids(spus))
    return SpuGroupStatus(
        group.status.resolution if group.deleting else SpuGroupResolution.RESERVED,
        f"draining: {ids}" if ids else "",
    )


def _ids(spus: Iterable[Spu]) -> Iterator[str]:
    return (str(spu_id) for spu_id in sorted(spu.spec.spu_id for spu in spus))


def _set_status(group: SpuGroup, status: SpuGroupStatus, world: _World) -> None:
    if status != group.status:
        world.actions.append(UpdateStatus(SPU_GROUP, group, status))
