"""Actions on SPUs and SPU groups: register, unregister; create, scale, delete.

The id of an SPU is unique over all SPUs, but the key of the object is its name. A registration
therefore lists the SPUs before and after it stores its own; of two with one id, the later one takes
itself back.
"""

import re
from contextlib import suppress
from dataclasses import replace

from anabranch.common.contracts import spus as contracts
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import (
    AnabranchError,
    Conflict,
    InvalidName,
    InvalidRequest,
    ObjectExists,
    RevisionConflict,
    SpuExists,
    SpuGroupExists,
    SpuGroupNotFound,
    SpuNotFound,
)
from anabranch.common.model.objects import (
    Spu,
    SpuGroup,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuStatus,
    SpuType,
)
from anabranch.controller.cluster.topics.shelf import ATTEMPTS_MAX
from anabranch.controller.handlers.desk.topics import TopicDesk
from anabranch.controller.handlers.topics.descriptions import described_group, described_spu

REPLICAS_MAX = 1000
_SPU_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_GROUP_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


async def register_spu(desk: TopicDesk, query: contracts.RegisterSpu) -> Contract:
    """Register a custom SPU. Raises InvalidName, InvalidRequest, SpuExists, Unavailable,
    OutcomeUnknown."""
    spec = query.spec
    if spec.spu_id < 0:
        raise InvalidRequest("the id of an SPU is not negative", spu_id=spec.spu_id)
    if spec.type is not SpuType.CUSTOM:
        raise InvalidRequest("only custom SPUs are registered; create an SPU group instead")
    name = query.name or f"custom-spu-{spec.spu_id}"
    if _SPU_NAME.fullmatch(name) is None:
        raise InvalidName(
            f"{name[:100]!r} is not the name of an SPU",
            remedy="use 1 to 64 letters, digits, hyphens and underscores",
            name=name[:100],
        )
    new = Spu(name, spec, SpuStatus())
    present = await _same(desk, new)
    if present is not None or query.dry_run:
        return contracts.SpuRegistered(spu=described_spu(present or new))
    try:
        stored = await desk.spus.create(new)
    except ObjectExists as error:
        raise _defined(new) from error
    await _require_first(desk, stored)
    return contracts.SpuRegistered(spu=described_spu(stored))


def _defined(spu: Spu) -> SpuExists:
    return SpuExists(
        f"spu '{spu.key}({spu.spec.spu_id})' already defined", spu=spu.key, id=spu.spec.spu_id
    )


async def _stored_spus(desk: TopicDesk) -> list[Spu]:
    """Every SPU as stored now. One that cannot be read does not count. Raises Unavailable."""
    found: list[Spu] = []
    for stored in await desk.spus.stored.list():
        try:
            found.append(desk.spus.kind.from_stored(stored))
        except AnabranchError:
            continue  # the dispatcher reports it
    return found


async def _same(desk: TopicDesk, new: Spu) -> Spu | None:
    """The SPU if it is registered with this spec. Raises SpuExists."""
    for found in await _stored_spus(desk):
        if found.key == new.key and found.spec == new.spec and not found.deleting:
            return found
        if found.key == new.key or found.spec.spu_id == new.spec.spu_id:
            raise _defined(new)
    return None


async def _require_first(desk: TopicDesk, spu: Spu) -> None:
    """Take the registration back if an earlier one has its id. Raises SpuExists."""
    for found in await _stored_spus(desk):
        is_other = found.key != spu.key and found.spec.spu_id == spu.spec.spu_id
        if is_other and found.revision < spu.revision:
            for _ in range(ATTEMPTS_MAX):
                newest = await desk.spus.read(spu.key)
                if newest is None or newest.spec != spu.spec:
                    break
                with suppress(RevisionConflict):  # its status has changed meanwhile
                    await desk.spus.stored.delete(spu.key, newest.revision)
                    break
            raise _defined(spu)


async def unregister_spu(desk: TopicDesk, query: contracts.UnregisterSpu) -> Contract:
    """Forget a custom SPU. Raises SpuNotFound, Conflict, Unavailable, OutcomeUnknown."""
    name = query.name or await _name_of(desk, query.spu_id)
    for _ in range(ATTEMPTS_MAX):
        found = await desk.spus.read(name)
        if found is None:
            raise SpuNotFound("SPU not found", spu=name)
        if found.spec.type is not SpuType.CUSTOM:
            raise Conflict(
                "expected 'Custom' spu, found 'Managed' spu",
                remedy="scale or delete its SPU group instead",
                spu=name,
            )
        if not query.force and name in desk.holders():
            raise Conflict(
                "the SPU still holds replicas",
                remedy="drain it first, or unregister it by `force`: what only it holds is lost",
                spu=name,
            )
        try:
            await desk.spus.stored.delete(name, found.revision)
        except RevisionConflict:
            continue
        break
    return contracts.SpuUnregistered(name=name)


async def _name_of(desk: TopicDesk, spu_id: int) -> str:
    """Raises SpuNotFound, Unavailable."""
    for found in await _stored_spus(desk):
        if found.spec.spu_id == spu_id:
            return found.key
    raise SpuNotFound("SPU not found", spu=str(spu_id))


async def create_spu_group(desk: TopicDesk, query: contracts.CreateSpuGroup) -> Contract:
    """Create a group. Raises InvalidName, InvalidRequest, SpuGroupExists, Unavailable,
    OutcomeUnknown."""
    if _GROUP_NAME.fullmatch(query.name) is None:
        raise InvalidName(
            f"{query.name[:100]!r} is not the name of an SPU group",
            remedy="use 1 to 63 lowercase letters, digits and hyphens, with no hyphen at an end",
            name=query.name[:100],
        )
    _check_group(query.spec)
    new = SpuGroup(query.name, query.spec, SpuGroupStatus())
    try:
        stored = await desk.groups.create(new)
    except ObjectExists as error:
        found = await desk.groups.read(query.name)
        if found is None or found.spec != query.spec or found.deleting:
            raise SpuGroupExists("the SPU group already exists", group=query.name) from error
        stored = found
    return contracts.SpuGroupDescribed(group=described_group(stored))


def _check_group(spec: SpuGroupSpec) -> None:
    """Raises InvalidRequest."""
    if not 0 <= spec.replicas <= REPLICAS_MAX:
        raise InvalidRequest(f"a group has 0 to {REPLICAS_MAX} SPUs", replicas=spec.replicas)
    if spec.min_id < 0:
        raise InvalidRequest("the id of an SPU is not negative", min_id=spec.min_id)
    if spec.storage_size_bytes < 0:
        raise InvalidRequest("a storage size is not negative", size=spec.storage_size_bytes)


async def scale_spu_group(desk: TopicDesk, query: contracts.ScaleSpuGroup) -> Contract:
    """Ask for another number of SPUs. Raises SpuGroupNotFound, InvalidRequest, Unavailable,
    OutcomeUnknown."""

    def decide(found: SpuGroup | None) -> SpuGroup:
        if found is None or found.deleting:
            raise SpuGroupNotFound("SPU group not found", group=query.name)
        spec = replace(found.spec, replicas=query.replicas)
        _check_group(spec)
        return replace(found, spec=spec)

    group = await desk.groups.change(query.name, decide)
    return contracts.SpuGroupDescribed(group=described_group(group))


async def delete_spu_group(desk: TopicDesk, query: contracts.DeleteSpuGroup) -> Contract:
    """Mark the group; its controller drains and stops the SPUs. Raises SpuGroupNotFound,
    Unavailable, OutcomeUnknown."""

    def decide(found: SpuGroup | None) -> SpuGroup:
        if found is None:
            raise SpuGroupNotFound("SPU group not found", group=query.name)
        return replace(found, deleting=True)

    group = await desk.groups.change(query.name, decide)
    return contracts.SpuGroupDescribed(group=described_group(group))
