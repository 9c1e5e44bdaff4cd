"""SPU groups as StatefulSets: what is created, changed and deleted."""

import json
from dataclasses import replace

from anabranch.common.provisioning.ports import WantedSpu
from anabranch.controller.domain.stateful_sets import (
    ChangeGroup,
    CreateGroup,
    DeleteGroup,
    FoundSet,
    PodOptions,
    next_steps,
    service,
    stateful_set,
)
from kit.golden import assert_golden_text
from kit.kubernetes_api import problem_of

OPTIONS = PodOptions(
    "streams", "anabranch-segstore:0.1.0", env=(("ANABRANCH_SEGSTORE_NATS_URL", "nats://nats"),)
)
GIB = 1 << 30


def group(name: str, count: int, rack: str = "", size: int = 20 * GIB) -> list[WantedSpu]:
    return [WantedSpu(f"{name}-{i}", name, 11 + i, rack, size) for i in range(count)]


def found(name: str, spus: list[WantedSpu]) -> FoundSet:
    body = stateful_set(spus, OPTIONS)
    digest = body["metadata"]["annotations"]["anabranch.io/template"]
    return FoundSet(name, body["spec"]["replicas"], digest)


def test_the_bodies_of_a_group_are_those_that_were_recorded() -> None:
    body = stateful_set(group("main", 2, "zone-1"), OPTIONS)
    assert problem_of(body) == ""
    assert_golden_text("stateful_set.json", json.dumps(body, indent=2) + "\n")
    assert_golden_text(
        "headless_service.json", json.dumps(service("main", OPTIONS), indent=2) + "\n"
    )


def test_a_group_gets_one_stateful_set_with_a_pod_for_each_spu() -> None:
    (step,) = next_steps(group("main", 3), [], OPTIONS)
    assert isinstance(step, CreateGroup)
    assert step.stateful_set["spec"]["replicas"] == 3
    assert step.stateful_set["spec"]["serviceName"] == step.service["metadata"]["name"] == "main"


def test_a_stateful_set_that_fits_is_left_alone() -> None:
    spus = group("main", 2)
    assert next_steps(spus, [found("main", spus)], OPTIONS) == []


def test_a_group_that_grows_changes_the_replicas_alone() -> None:
    before = found("main", group("main", 1))
    assert next_steps(group("main", 3), [before], OPTIONS) == [
        ChangeGroup("main", {"spec": {"replicas": 3}})
    ]


def test_pods_go_only_when_their_spus_are_gone() -> None:
    three = group("main", 3)
    draining = [*three[:1], *(replace(spu, deleting=True) for spu in three[1:])]
    assert next_steps(draining, [found("main", three)], OPTIONS) == []
    lowest_empty = [three[0], three[2]]
    assert next_steps(lowest_empty, [found("main", three)], OPTIONS) == []
    (step,) = next_steps(three[:2], [found("main", three)], OPTIONS)
    assert step == ChangeGroup("main", {"spec": {"replicas": 2}})


def test_another_image_changes_the_template_and_keeps_the_claims() -> None:
    spus = group("main", 2)
    newer = replace(OPTIONS, image="anabranch-segstore:0.2.0")
    (step,) = next_steps(spus, [found("main", spus)], newer)
    assert isinstance(step, ChangeGroup)
    (container,) = step.patch["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "anabranch-segstore:0.2.0"
    assert step.patch["spec"].keys() == {"template"}


def test_the_stateful_set_of_a_group_without_spus_is_deleted() -> None:
    sets = [found("extra", group("extra", 1)), found("main", group("main", 1))]
    assert next_steps(group("main", 1), sets, OPTIONS) == [DeleteGroup("extra")]


def test_a_group_without_a_storage_size_claims_the_usual_one_and_has_no_limit() -> None:
    body = stateful_set(group("main", 1, size=0), OPTIONS)
    (claim,) = body["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == str(GIB)
    (container,) = body["spec"]["template"]["spec"]["containers"]
    names = {variable["name"] for variable in container["env"]}
    assert "ANABRANCH_SEGSTORE_TOPIC_STORAGE_SIZE_BYTES" not in names
