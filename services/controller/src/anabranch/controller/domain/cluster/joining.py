"""Which segment stores are members of the cluster, and why others are refused. Pure.

    no proof of the join token ───────────────────────────► refused: NO_TOKEN
    an SPU with the store's node id is registered ────────► member
    its SPU was unregistered while the store ran ─────────► refused: UNREGISTERED
    no such SPU, the cluster registers stores by itself ──► member; the leader registers it
    no such SPU, operators register SPUs ─────────────────► refused: UNREGISTERED

A refused store gets no container and is named to no client. The leader ends the session of an
unregistered store and marks its record, so that the store closes its containers and waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from anabranch.common.model.cluster import NodeRecord
from anabranch.common.model.joining import may_join
from anabranch.common.model.objects import Ingress, PrivateEndpoint, PublicEndpoint, SpuSpec

SpuRegistration = Literal["required", "automatic"]
"""`required`: operators and SPU groups register SPUs. `automatic`: the leader also registers every
other store that has the join token, as a custom SPU with the next free id."""


class Refusal(StrEnum):
    """Why a store is no member. The values are part of `NodeDescription`."""

    NO_TOKEN = "join-token"
    UNREGISTERED = "unregistered"


@dataclass(frozen=True, slots=True)
class Joining:
    """The facts that decide about stores. `registered`: the node ids of the registered SPUs; None:
    not known yet. `expelled`: the stores whose SPUs were unregistered while they ran."""

    policy: SpuRegistration = "automatic"
    token: str = ""
    registered: Collection[str] | None = None
    expelled: Collection[str] = ()


def refusal(record: NodeRecord, name: str, joining: Joining) -> Refusal | None:
    """Why the store with this record under the key `name` is refused; None: it is a member."""
    if not may_join(joining.token, name, record.session, record.proof):
        return Refusal.NO_TOKEN
    if joining.registered is not None and name in joining.registered:
        return Refusal.UNREGISTERED if record.unregistered else None
    if joining.policy == "required" or record.unregistered or name in joining.expelled:
        return Refusal.UNREGISTERED
    return None


def to_register(
    members: Mapping[str, NodeRecord],
    registered: Mapping[str, int],
    reserved: Collection[int] = (),
) -> Mapping[str, SpuSpec]:
    """The custom SPUs that the leader registers: node id → spec, with the next free ids.

    `registered`: the ids of the registered SPUs by node id. `reserved`: ids that SPU groups will
    use. Equal inputs give equal ids: the stores are taken in the order of their node ids, and the
    new ids are greater than all others. The stores of SPU groups are left to these.
    """
    free = {name for name, record in members.items() if not record.spu_group}
    unknown = sorted(free - registered.keys())
    first = max((*registered.values(), *reserved), default=-1) + 1
    return {name: spec_of(members[name], first + i) for i, name in enumerate(unknown)}


def spec_of(record: NodeRecord, spu_id: int) -> SpuSpec:
    """The spec of a custom SPU as its store announces itself."""
    peer = record.peer
    return SpuSpec(
        spu_id,
        public=PublicEndpoint(record.endpoint.port, (Ingress(hostname=record.endpoint.host),)),
        private=PrivateEndpoint(peer.host, peer.port) if peer else PrivateEndpoint(),
        rack=record.rack,
    )
