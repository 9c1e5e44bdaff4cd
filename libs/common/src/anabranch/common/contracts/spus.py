"""Queries about SPUs and SPU groups, and actions on them; answered like those of `topics`."""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import PagedQuery, Query, Question
from anabranch.common.model.objects import (
    SpuGroupResolution,
    SpuGroupSpec,
    SpuResolution,
    SpuSpec,
)


class SpuDescription(Contract):
    """A registered SPU, or a store that was refused because it is not registered (`refused`).

    `spec`: what was registered. `resolution`: whether its store is connected.
    """

    name: str
    """The node id of its store."""
    spec: SpuSpec
    resolution: SpuResolution
    group: str = ""
    """The SPU group that owns it."""
    refused: bool = False
    deleting: bool = False
    """It is being stopped; its process ends once it holds nothing."""


class RegisterSpu(Query):
    """→ SpuRegistered. Raises SpuExists (the name or the id), InvalidRequest. May be repeated with
    the same spec. `name`: empty: ``custom-spu-<id>``."""

    spec: SpuSpec
    name: str = ""
    dry_run: bool = False


class SpuRegistered(Contract):
    ok: Literal[True] = True
    spu: SpuDescription


class UnregisterSpu(Query):
    """→ SpuUnregistered. By name, or by id if the name is empty.

    Raises SpuNotFound; Conflict for a managed SPU, and for one that still holds replicas, unless
    `force`.
    """

    name: str = ""
    spu_id: int = -1
    force: bool = False


class SpuUnregistered(Contract):
    ok: Literal[True] = True
    name: str


class ListSpus(PagedQuery):
    """→ SpuList, sorted by id, then refused stores. `custom`: only custom SPUs."""

    custom: bool = False


class SpuList(Contract):
    ok: Literal[True] = True
    spus: tuple[SpuDescription, ...]
    next_page_token: str = ""


class SpuGroupDescription(Contract):
    """An SPU group. `resolution`: the status, with a `reason` if the spec is invalid."""

    name: str
    spec: SpuGroupSpec
    resolution: SpuGroupResolution
    reason: str = ""
    deleting: bool = False


class CreateSpuGroup(Query):
    """→ SpuGroupDescribed. Raises InvalidName, InvalidRequest, SpuGroupExists (with another
    spec)."""

    name: str
    spec: SpuGroupSpec = SpuGroupSpec()


class ScaleSpuGroup(Query):
    """→ SpuGroupDescribed. More replicas are started; fewer: those with the highest ids are drained
    and stopped. Raises SpuGroupNotFound, InvalidRequest."""

    name: str
    replicas: int


class DeleteSpuGroup(Query):
    """→ SpuGroupDescribed. Drains and stops all SPUs of the group, then forgets it.

    Raises SpuGroupNotFound.
    """

    name: str


class SpuGroupDescribed(Contract):
    ok: Literal[True] = True
    group: SpuGroupDescription


class ListSpuGroups(PagedQuery):
    """→ SpuGroupList, sorted by name."""


class SpuGroupList(Contract):
    ok: Literal[True] = True
    groups: tuple[SpuGroupDescription, ...]
    next_page_token: str = ""


QUERIES: Mapping[str, Question] = {
    "list_spus": Question(ListSpus, SpuList),
    "list_spu_groups": Question(ListSpuGroups, SpuGroupList),
}
"""By name."""

ACTIONS: Mapping[str, Question] = {
    "register_spu": Question(RegisterSpu, SpuRegistered),
    "unregister_spu": Question(UnregisterSpu, SpuUnregistered),
    "create_spu_group": Question(CreateSpuGroup, SpuGroupDescribed),
    "scale_spu_group": Question(ScaleSpuGroup, SpuGroupDescribed),
    "delete_spu_group": Question(DeleteSpuGroup, SpuGroupDescribed),
}
"""Questions that change something, by name."""
