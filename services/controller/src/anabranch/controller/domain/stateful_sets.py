"""SPU groups as StatefulSets and headless Services of Kubernetes. Pure.

A group has one StatefulSet and one Service, both with the group's name. The pod of ordinal i is
thus named ``<group>-<i>``, which is the node id of the SPU i, and has a stable host name. The
number of replicas covers every SPU that is registered. A pod therefore goes only when its SPU is
gone, which happens once its store holds nothing. Kubernetes removes pods from the highest ordinal
on, as groups do.

The bodies are those of the API `apps/v1` and `v1`, as plain dicts.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.common.provisioning.ports import WantedSpu

Body = dict[str, Any]

GROUP_LABEL = "anabranch.io/spu-group"
RACK_LABEL = "anabranch.io/rack"
CLUSTER_LABEL = "anabranch.io/cluster"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "anabranch-controller"
TEMPLATE_ANNOTATION = "anabranch.io/template"
DATA_PORT, PEER_PORT, HEALTH_PORT = 9400, 9401, 9464
DATA_DIR = "/data"
GRACE_S = 60


@dataclass(frozen=True, slots=True)
class PodOptions:
    """The options of all pods of segment stores.

    `cluster`: tells the StatefulSets of several clusters in one namespace apart. `env`: variables
    of every store, such as those of NATS and tier 2. `claim_size_bytes`: the size of a volume of a
    group without a storage size.
    """

    namespace: str
    image: str
    cluster: str = "anabranch"
    domain: str = "cluster.local"
    storage_class: str = ""
    claim_size_bytes: int = 1 << 30
    service_account: str = ""
    env: tuple[tuple[str, str], ...] = ()

    @property
    def selector(self) -> str:
        """Selects the StatefulSets of this cluster."""
        return f"{MANAGED_LABEL}={MANAGER},{CLUSTER_LABEL}={self.cluster}"


@dataclass(frozen=True, slots=True)
class FoundSet:
    """A StatefulSet as it is. `template`: the digest of the pod template that it was made from;
    `ready`: its ready pods; `current`: its pods."""

    name: str
    replicas: int
    template: str
    current: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True)
class CreateGroup:
    group: str
    service: Body
    stateful_set: Body


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """`patch`: a merge patch of the StatefulSet."""

    group: str
    patch: Body


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    group: str


Step = CreateGroup | ChangeGroup | DeleteGroup


def next_steps(
    wanted: Iterable[WantedSpu], found: Iterable[FoundSet], options: PodOptions
) -> Sequence[Step]:
    """The steps that make the StatefulSets fit the registered SPUs, in the order of the groups."""
    groups: dict[str, list[WantedSpu]] = {}
    for spu in wanted:
        groups.setdefault(spu.group, []).append(spu)
    sets = {one.name: one for one in found}
    steps: list[Step] = []
    for group in sorted(groups.keys() | sets.keys()):
        spus, present = groups.get(group, []), sets.get(group)
        if not spus:
            steps.append(DeleteGroup(group))
        elif present is None:
            steps.append(CreateGroup(group, service(group, options), stateful_set(spus, options)))
        else:
            patch = _patch(stateful_set(spus, options), present)
            if patch:
                steps.append(ChangeGroup(group, patch))
    return steps


def _patch(wanted: Body, found: FoundSet) -> Body:
    """The differences; the claims of a StatefulSet cannot be changed."""
    spec: Body = {}
    if wanted["spec"]["replicas"] != found.replicas:
        spec["replicas"] = wanted["spec"]["replicas"]
    digest = wanted["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    if digest == found.template:
        return {"spec": spec} if spec else {}
    spec["template"] = wanted["spec"]["template"]
    return {"metadata": {"annotations": {TEMPLATE_ANNOTATION: digest}}, "spec": spec}


def replicas_of(spus: Iterable[WantedSpu]) -> int:
    """The number of pods that has one for each SPU, those to be deleted included."""
    return max((spu.index + 1 for spu in spus), default=0)


def labels_of(group: str, options: PodOptions) -> dict[str, str]:
    """The labels of everything that belongs to the group."""
    return {MANAGED_LABEL: MANAGER, CLUSTER_LABEL: options.cluster, GROUP_LABEL: group}


def service(group: str, options: PodOptions) -> Body:
    """The headless Service that gives each pod a host name, also before it is ready."""
    labels = labels_of(group, options)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": group, "namespace": options.namespace, "labels": labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [
                {"name": "data", "port": DATA_PORT},
                {"name": "peer", "port": PEER_PORT},
            ],
        },
    }


def stateful_set(spus: Sequence[WantedSpu], options: PodOptions) -> Body:
    """The StatefulSet of a group that has these SPUs, at least one."""
    first = spus[0]
    labels, template = labels_of(first.group, options), _template(first, options)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": first.group,
            "namespace": options.namespace,
            "labels": labels,
            "annotations": {TEMPLATE_ANNOTATION: digest_of(template)},
        },
        "spec": {
            "replicas": replicas_of(spus),
            "serviceName": first.group,
            "podManagementPolicy": "Parallel",
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain",
                "whenScaled": "Retain",
            },
            "selector": {"matchLabels": labels},
            "template": template,
            "volumeClaimTemplates": [_claim(first, labels, options)],
        },
    }


def digest_of(template: Mapping[str, Any]) -> str:
    """Tells templates apart."""
    text = json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _template(spu: WantedSpu, options: PodOptions) -> Body:
    labels = labels_of(spu.group, options)
    if spu.rack:
        labels[RACK_LABEL] = spu.rack
    pod: Body = {
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {"fsGroup": 10001},
        "containers": [_container(spu, options)],
    }
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    return {"metadata": {"labels": labels}, "spec": pod}


def _container(spu: WantedSpu, options: PodOptions) -> Body:
    return {
        "name": "segstore",
        "image": options.image,
        "env": _environment(spu, options),
        "ports": [
            {"name": "data", "containerPort": DATA_PORT},
            {"name": "peer", "containerPort": PEER_PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "volumeMounts": [{"name": "data", "mountPath": DATA_DIR}],
    }


def _environment(spu: WantedSpu, options: PodOptions) -> list[Body]:
    """The pod's name first: Kubernetes puts it in place of ``$(POD_NAME)`` in later variables."""
    host = f"$(POD_NAME).{spu.group}.{options.namespace}.svc.{options.domain}"
    variables = {
        **dict(options.env),
        **dict(spu.env),
        "ANABRANCH_SEGSTORE_NODE_ID": "$(POD_NAME)",
        "ANABRANCH_SEGSTORE_SPU_GROUP": spu.group,
        "ANABRANCH_SEGSTORE_RACK": spu.rack,
        "ANABRANCH_SEGSTORE_DATA_DIR": f"{DATA_DIR}/segstore",
        "ANABRANCH_SEGSTORE_BIND": f"0.0.0.0:{DATA_PORT}",
        "ANABRANCH_SEGSTORE_ADVERTISE": f"{host}:{DATA_PORT}",
        "ANABRANCH_SEGSTORE_PEER_BIND": f"0.0.0.0:{PEER_PORT}",
        "ANABRANCH_SEGSTORE_PEER_ADVERTISE": f"{host}:{PEER_PORT}",
        "ANABRANCH_SEGSTORE_HEALTH_BIND": f"0.0.0.0:{HEALTH_PORT}",
    }
    if spu.storage_size_bytes:
        size = str(spu.storage_size_bytes)
        variables["ANABRANCH_SEGSTORE_TOPIC_STORAGE_SIZE_BYTES"] = size
    named = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    return [named, *({"name": name, "value": value} for name, value in variables.items())]


def _claim(spu: WantedSpu, labels: Mapping[str, str], options: PodOptions) -> Body:
    size = spu.storage_size_bytes or options.claim_size_bytes
    spec: Body = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(size)}},
    }
    if options.storage_class:
        spec["storageClassName"] = options.storage_class
    return {"metadata": {"name": "data", "labels": dict(labels)}, "spec": spec}
