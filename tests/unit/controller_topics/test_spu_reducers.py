"""The decisions of the SPU and SPU group reducers that a text scenario would show less well."""

import pytest

from anabranch.common.model.objects import (
    GIB,
    ClusterObject,
    Spu,
    SpuGroup,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuResolution,
    SpuSpec,
    SpuStatus,
    SpuType,
)
from anabranch.controller.domain.cluster.objects import groups, spus
from anabranch.controller.domain.cluster.objects.actions import Apply, DeleteFinal, UpdateStatus
from anabranch.controller.domain.cluster.objects.groups import Drain, GroupPlan

NEW = SpuStatus()
RESERVED = SpuGroupStatus(SpuGroupResolution.RESERVED)


def spu(
    name: str, spu_id: int, status: SpuStatus = NEW, *, owner: str = "", going: bool = False
) -> Spu:
    kind = SpuType.MANAGED if owner else SpuType.CUSTOM
    return ClusterObject(name, SpuSpec(spu_id, kind), status, owner, deleting=going, revision=1)


def group(name: str, spec: SpuGroupSpec, *, going: bool = False) -> SpuGroup:
    return ClusterObject(name, spec, RESERVED, deleting=going, revision=1)


def plan(found: SpuGroup, *children: Spu, holding: str = "", drained: str = "") -> GroupPlan:
    return groups.reduce([found], children, holding.split().__contains__, drained.split())


@pytest.mark.parametrize("before", list(SpuResolution))
@pytest.mark.parametrize("live", [True, False, None])
def test_an_spu_is_online_if_its_store_is_live_and_init_only_until_it_is_seen(
    before: SpuResolution, live: bool | None
) -> None:
    found = spu("a", 1, SpuStatus(before))
    seen = {} if live is None else {"a": live}
    wanted = SpuResolution.ONLINE if live else SpuResolution.OFFLINE
    if live is None and before is SpuResolution.INIT:
        wanted = SpuResolution.INIT

    actions = spus.reduce([found], seen)

    after = [action.status for action in actions if isinstance(action, UpdateStatus)]
    assert after == ([] if wanted is before else [SpuStatus(wanted)])


def test_a_managed_spu_that_is_to_go_is_left_to_its_group() -> None:
    assert spus.reduce([spu("g-0", 1, owner="g", going=True)], {}) == []


def test_a_new_spu_gets_the_template_of_its_group() -> None:
    template = SpuGroupSpec(1, 5, rack="z1", storage_size_bytes=20 * GIB)

    (action,) = plan(group("g", template)).actions

    assert isinstance(action, Apply)
    assert action.object == ClusterObject(
        "g-0",
        SpuSpec(5, SpuType.MANAGED, rack="z1", storage_size_bytes=20 * GIB),
        SpuStatus(),
        owner="g",
    )


def test_an_spu_is_deleted_only_after_it_is_seen_drained() -> None:
    gone, child = group("g", SpuGroupSpec(0, 5)), spu("g-0", 5, owner="g", going=True)

    before = plan(gone, child)
    after = plan(gone, child, drained="g-0")

    assert before.drains == (Drain("g-0"),)
    assert not any(isinstance(action, DeleteFinal) for action in before.actions)
    assert DeleteFinal in map(type, after.actions)


def test_a_group_that_grows_again_replaces_the_spu_that_is_going() -> None:
    found, child = group("g", SpuGroupSpec(1, 5)), spu("g-0", 5, owner="g", going=True)

    waits = plan(found, child, holding="g-0", drained="g-0")
    goes = plan(found, child, drained="g-0")

    assert [type(action) for action in waits.actions] == [UpdateStatus]
    assert DeleteFinal in map(type, goes.actions)
    assert Apply not in map(type, goes.actions)


def test_a_conflict_does_not_stop_a_deletion_that_is_under_way() -> None:
    found = group("g", SpuGroupSpec(2, 5))
    others = spu("g-1", 6, owner="g", going=True), spu("mine", 5)

    actions = plan(found, *others, drained="g-1").actions

    assert [type(action) for action in actions] == [UpdateStatus, DeleteFinal]


def test_an_id_that_two_spus_have_is_a_conflict() -> None:
    found = group("g", SpuGroupSpec(1, 5))

    (action,) = plan(found, spu("mine", 5), spu("g-0", 5, owner="g")).actions

    assert isinstance(action, UpdateStatus)
    assert action.status == SpuGroupStatus(SpuGroupResolution.INVALID, "conflict with: 5")


def test_a_group_that_comes_later_cannot_take_ids_that_are_reserved() -> None:
    reserved = group("zeta", SpuGroupSpec(1, 70))
    later = ClusterObject("alpha", SpuGroupSpec(2, 69), SpuGroupStatus(), revision=2)

    found = groups.reduce([later, reserved], [], lambda _: False, ())

    created, refused = sorted(found.actions, key=lambda action: action.object.key, reverse=True)
    assert isinstance(created, Apply)
    assert created.object.key == "zeta-0"
    assert isinstance(refused, UpdateStatus)
    assert refused.status == SpuGroupStatus(SpuGroupResolution.INVALID, "conflict with: 70")
