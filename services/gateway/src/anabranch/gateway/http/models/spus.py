"""SPUs and SPU groups as bodies and answers."""

from typing import Annotated

from pydantic import Field

from anabranch.common.contracts.spus import SpuDescription, SpuGroupDescription
from anabranch.common.model.objects import (
    GIB,
    Encryption,
    Ingress,
    PrivateEndpoint,
    PublicEndpoint,
    SpuGroupSpec,
    SpuSpec,
    SpuType,
)
from anabranch.gateway.http.models.answers import INT63, HttpBody, NextPageToken, Told

Number = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Size = Annotated[int, Field(ge=0, le=INT63)]
Host = Annotated[str, Field(min_length=1, max_length=255)]
Rack = Annotated[str, Field(max_length=63)]
REPLICAS_MAX = 65_535


class IngressBody(HttpBody):
    hostname: Annotated[str, Field(max_length=255)] = ""
    ip: Annotated[str, Field(max_length=64)] = ""


class PublicEndpointBody(HttpBody):
    """The endpoint for clients."""

    port: Port = 9005
    ingress: Annotated[tuple[IngressBody, ...], Field(max_length=16)] = ()
    encryption: Encryption = Encryption.PLAINTEXT


class PrivateEndpointBody(HttpBody):
    """The endpoint for other SPUs."""

    host: Host = "127.0.0.1"
    port: Port = 9006
    encryption: Encryption = Encryption.PLAINTEXT


class RegisterSpuRequest(HttpBody):
    """A custom SPU. `name`: the node id of its store; ``custom-spu-<id>`` without one. A
    `storageSizeBytes` of 0: its partitions may hold any amount."""

    spu_id: Number
    name: Annotated[str, Field(max_length=255)] = ""
    public_endpoint: PublicEndpointBody = PublicEndpointBody()
    private_endpoint: PrivateEndpointBody = PrivateEndpointBody()
    rack: Rack = ""
    storage_size_bytes: Size = 0

    def spec(self) -> SpuSpec:
        public, private = self.public_endpoint, self.private_endpoint
        ingress = tuple(Ingress(each.hostname, each.ip) for each in public.ingress)
        return SpuSpec(
            spu_id=self.spu_id,
            type=SpuType.CUSTOM,
            public=PublicEndpoint(public.port, ingress, public.encryption),
            private=PrivateEndpoint(private.host, private.port, private.encryption),
            rack=self.rack,
            storage_size_bytes=self.storage_size_bytes,
        )


class CreateSpuGroupRequest(HttpBody):
    """An SPU group: the managed SPUs with the ids from `minId` on."""

    group_name: str
    replicas: Annotated[int, Field(ge=0, le=REPLICAS_MAX)] = 1
    min_id: Number = 0
    rack: Rack = ""
    storage_size_bytes: Size = GIB

    def spec(self) -> SpuGroupSpec:
        return SpuGroupSpec(self.replicas, self.min_id, self.rack, self.storage_size_bytes)


class ScaleSpuGroupRequest(HttpBody):
    replicas: Annotated[int, Field(ge=0, le=REPLICAS_MAX)]


class IngressProperty(Told):
    hostname: str
    ip: str


class PublicEndpointProperty(Told):
    port: int
    ingress: tuple[IngressProperty, ...]
    encryption: str


class PrivateEndpointProperty(Told):
    host: str
    port: int
    encryption: str


class SpuProperty(Told):
    """An SPU, or a segment store that was refused because it is not registered (`refused`).
    `group`: the SPU group that owns it. `deleting`: it is being stopped."""

    name: str
    spu_id: int
    type: str
    resolution: str
    rack: str
    public_endpoint: PublicEndpointProperty
    private_endpoint: PrivateEndpointProperty
    storage_size_bytes: int
    group: str
    refused: bool
    deleting: bool


class SpusList(Told):
    spus: list[SpuProperty]
    next_page_token: NextPageToken = ""


class SpuGroupProperty(Told):
    """An SPU group. `reason`: why it is invalid. `deleting`: its SPUs are being stopped."""

    group_name: str
    replicas: int
    min_id: int
    rack: str
    storage_size_bytes: int
    resolution: str
    reason: str
    deleting: bool


class SpuGroupsList(Told):
    spu_groups: list[SpuGroupProperty]


def spu_property(one: SpuDescription) -> SpuProperty:
    """The SPU as an answer."""
    spec = one.spec
    return SpuProperty(
        name=one.name,
        spu_id=spec.spu_id,
        type=spec.type.value,
        resolution=one.resolution.value,
        rack=spec.rack,
        public_endpoint=PublicEndpointProperty.model_validate(spec.public),
        private_endpoint=PrivateEndpointProperty.model_validate(spec.private),
        storage_size_bytes=spec.storage_size_bytes,
        group=one.group,
        refused=one.refused,
        deleting=one.deleting,
    )


def group_property(one: SpuGroupDescription) -> SpuGroupProperty:
    """The SPU group as an answer."""
    return SpuGroupProperty(
        group_name=one.name,
        replicas=one.spec.replicas,
        min_id=one.spec.min_id,
        rack=one.spec.rack,
        storage_size_bytes=one.spec.storage_size_bytes,
        resolution=one.resolution.value,
        reason=one.reason,
        deleting=one.deleting,
    )
