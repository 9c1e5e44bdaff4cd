"""The SPU controller's decisions. Pure and level-triggered.

    status    the SPU's store is        becomes
    init      not seen yet              init
    any       live                      online
    any       down, or not seen any     offline
              more

A custom SPU that is marked for deletion is deleted at once, because its user stops it. A managed
one belongs to a group, whose controller drains it first.
"""

from collections.abc import Iterable, Mapping

from anabranch.common.contracts.objects import SPU
from anabranch.common.model.objects import Spu, SpuResolution, SpuStatus, SpuType
from anabranch.controller.domain.cluster.objects.actions import Action, DeleteFinal, UpdateStatus


def reduce(spus: Iterable[Spu], live: Mapping[str, bool]) -> list[Action]:
    """The due changes, in the order of the SPUs.

    `live`: by node id, whether a store is live; without an entry it was never seen. A controller
    that knows the members not yet must not call.
    """
    actions: list[Action] = []
    for spu in spus:
        if spu.deleting and spu.spec.type is SpuType.CUSTOM:
            actions.append(DeleteFinal(SPU, spu))
            continue
        status = SpuStatus(_resolution(spu, live.get(spu.key)))
        if status != spu.status:
            actions.append(UpdateStatus(SPU, spu, status))
    return actions


def _resolution(spu: Spu, live: bool | None) -> SpuResolution:
    if live:
        return SpuResolution.ONLINE
    never_seen = live is None and spu.status.resolution is SpuResolution.INIT
    return SpuResolution.INIT if never_seen else SpuResolution.OFFLINE
