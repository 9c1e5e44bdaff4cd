"""The deployment fits the services, and each rule about it finds what it forbids."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidy import deployment
from tidy.source import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
THREE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "three.yml").read_text())
REPLICATED: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "replicated.yml").read_text())
LOOPBACK: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "loopback.yml").read_text())
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
PARTS = sorted(set(deployment.parts_of(COMPOSE).values()))
SETTINGS = {part: deployment.settings_of(part) for part in PARTS}


def merged(compose: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """A compose file with one that changes variables alone, as Compose merges them."""
    whole = deepcopy(compose)
    for name, service in beside["services"].items():
        assert service.keys() == {"environment"}
        whole["services"][name]["environment"] |= service["environment"]
    return whole


COPIES = merged(THREE, REPLICATED)


@pytest.fixture
def compose() -> dict[str, Any]:
    """A copy of the real compose file, to be spoilt."""
    return deepcopy(COMPOSE)


@pytest.mark.parametrize(
    "compose", [COMPOSE, THREE, COPIES], ids=["one", "three", "three-replicated"]
)
def test_the_compose_files_fit_the_services(compose: dict[str, Any]) -> None:
    assert sorted(path.name for path in (ROOT / "services").iterdir()) == PARTS
    assert deployment.wrong_variables(compose, SETTINGS) == []
    assert deployment.wrong_lifetimes(compose) == []
    assert deployment.wrong_rights(compose) == []
    assert deployment.wrong_limits(compose) == []
    assert deployment.wrong_leftovers(compose) == []
    assert deployment.wrong_sharing(compose) == []
    assert deployment.wrong_redis(compose) == []
    assert deployment.wrong_nats(compose) == []
    assert deployment.wrong_routes(compose) == []
    assert deployment.unowned_mounts(compose, DOCKERFILE) == []


def test_the_file_with_three_of_each_loses_nothing_with_one_of_them() -> None:
    parts = deployment.parts_of(THREE)
    for part in ("controller", "segstore"):
        assert sum(one == part for one in parts.values()) == 3
    for name in ("nats", "nats-2", "nats-3"):
        assert name in THREE["services"]
    stores = [THREE["services"][name] for name, part in parts.items() if part == "segstore"]
    assert len({deployment.mounts_of(store)["/data"] for store in stores}) == 3
    for store in stores:
        told = store["environment"]
        assert told["ANABRANCH_SEGSTORE_JOURNAL"] == "jetstream"
        assert told["ANABRANCH_SEGSTORE_LOG_REPLICAS"] == 3
    advertised = {store["environment"]["ANABRANCH_SEGSTORE_ADVERTISE"] for store in stores}
    assert advertised == {f"{name}:9400" for name, part in parts.items() if part == "segstore"}


def test_stores_that_replicate_logs_reach_each_other() -> None:
    stores = [name for name, part in deployment.parts_of(COPIES).items() if part == "segstore"]
    for name in stores:
        told = COPIES["services"][name]["environment"]
        assert told["ANABRANCH_SEGSTORE_JOURNAL"] == "replicated"
        assert told["ANABRANCH_SEGSTORE_PEER_ADVERTISE"] == f"{name}:9401"
    controllers = [
        name for name, part in deployment.parts_of(COPIES).items() if part == "controller"
    ]
    for name in controllers:
        told = COPIES["services"][name]["environment"]
        assert told["ANABRANCH_CONTROLLER_REPLICATION"] == len(stores)


def test_a_store_that_listens_for_other_stores_on_its_loopback_address_is_found() -> None:
    compose = deepcopy(COPIES)
    del compose["services"]["segstore-2"]["environment"]["ANABRANCH_SEGSTORE_PEER_BIND"]
    [complaint] = deployment.wrong_variables(compose, SETTINGS)
    assert "segstore-2: ANABRANCH_SEGSTORE_PEER_BIND is missing" in complaint


def test_the_files_give_the_same_parts_the_same_rights() -> None:
    kept = ("image", "cap_drop", "security_opt", "read_only", "mem_limit", "pids_limit", "tmpfs")
    for name, one in COMPOSE["services"].items():
        assert [one.get(key) for key in kept] == [THREE["services"][name].get(key) for key in kept]


def spoilt(service: str, variable: str, value: object) -> dict[str, Any]:
    compose = deepcopy(THREE)
    compose["services"][service]["environment"][variable] = value
    return compose


@pytest.mark.parametrize(
    ("service", "variable", "value", "complaint"),
    [
        ("gateway", "ANABRANCH_GATEWAY_NATS_URL", "nats://nats:4222", "names ['nats']"),
        ("segstore-2", "ANABRANCH_SEGSTORE_NATS_MONITOR_URLS", "http://nats:8222", "names"),
        ("controller-3", "ANABRANCH_CONTROLLER_NATS_MONITOR_URL", "http://nats:8222", "names"),
        ("segstore", "ANABRANCH_SEGSTORE_LOG_REPLICAS", 5, "more than"),
    ],
)
def test_a_service_that_does_not_know_all_nats_servers_is_found(
    service: str, variable: str, value: object, complaint: str
) -> None:
    (found,) = deployment.wrong_nats(spoilt(service, variable, value))
    assert found.startswith(f"{service}: ")
    assert complaint in found


def test_a_store_with_logs_in_nats_must_know_the_monitoring_ports() -> None:
    compose = deepcopy(THREE)
    del compose["services"]["segstore"]["environment"]["ANABRANCH_SEGSTORE_NATS_MONITOR_URLS"]
    (found,) = deployment.wrong_variables(compose, SETTINGS)
    assert "reaches nobody outside" in found


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("command", [*THREE["services"]["nats"]["command"]], "its name must be its own"),
        ("command", THREE["services"]["nats-2"]["command"][:-1], "must know the routes"),
        ("volumes", THREE["services"]["nats"]["volumes"], "a volume each"),
    ],
)
def test_nats_servers_that_are_no_cluster_are_found(
    key: str, value: object, complaint: str
) -> None:
    compose = deepcopy(THREE)
    compose["services"]["nats-2"][key] = value
    (found,) = deployment.wrong_routes(compose)
    assert complaint in found


def test_the_dockerfile_fits_the_project() -> None:
    assert deployment.wrong_image(DOCKERFILE) == []
    assert deployment.missing_paths(DOCKERFILE, PARTS, ROOT) == []


def test_the_command_is_in_the_compose_file_and_started_only_when_it_is_asked_for() -> None:
    command = COMPOSE["services"]["anabranch"]
    installed = command["build"]["args"]["DISTRIBUTIONS"].split()
    stores = COMPOSE["services"]["segstore"]

    assert set(COMPOSE["services"]) - set(deployment.lasting(COMPOSE)) == {"anabranch"}
    assert command["restart"] == "no"
    assert installed == ["anabranch-cli", "anabranch-controller", "anabranch-segstore"]
    assert deployment.mounts_of(command) == deployment.mounts_of(stores)
    assert command["networks"] == stores["networks"]


def test_the_override_file_publishes_nats_and_the_store_to_this_machine() -> None:
    assert deployment.wrong_override(COMPOSE, LOOPBACK) == []
    assert {name for name, one in LOOPBACK["services"].items() if one["ports"]} == {
        "nats",
        "segstore",
    }


@pytest.mark.parametrize(
    ("service", "key", "value", "complaint"),
    [
        ("nats", "ports", ["4222:4222"], "open to other machines"),
        ("nats", "ports", ["127.0.0.1:4222:4223"], "nobody listens"),
        ("segstore", "ports", ["127.0.0.1:9400:9401"], "nobody listens"),
        ("segstore", "networks", [], "internal"),
        ("store", "ports", [], "not in the base"),
    ],
)
def test_an_override_that_publishes_too_much_or_nothing_is_found(
    service: str, key: str, value: object, complaint: str
) -> None:
    override = deepcopy(LOOPBACK)
    override["services"].setdefault(service, {"networks": ["edge"]})[key] = value

    found = deployment.wrong_override(COMPOSE, override)

    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("service", "key", "value", "complaint"),
    [
        ("gateway", "mem_limit", None, "gateway: no mem_limit"),
        ("redis", "cpus", None, "redis: no cpus"),
        ("segstore", "pids_limit", None, "segstore: no pids_limit"),
        ("nats", "environment", {}, "nats: GOMEMLIMIT"),
        ("nats", "environment", {"GOMEMLIMIT": "1GiB"}, "nats: GOMEMLIMIT"),
        ("nats", "mem_limit", "512m", "nats: GOMEMLIMIT"),
    ],
)
def test_a_service_without_limits_is_found(
    compose: dict[str, Any], service: str, key: str, value: object, complaint: str
) -> None:
    compose["services"][service][key] = value
    if value is None:
        del compose["services"][service][key]

    (found,) = deployment.wrong_limits(compose)

    assert found.startswith(complaint)


def test_a_volume_of_an_image_that_nothing_is_mounted_on_is_found(compose: dict[str, Any]) -> None:
    del compose["services"]["redis"]["tmpfs"]

    assert deployment.wrong_leftovers(compose) == [
        "redis: nothing is mounted on /data, a volume of its image"
    ]


@pytest.mark.parametrize(
    ("service", "variable", "value", "complaint"),
    [
        ("segstore", "ANABRANCH_SEGSTORE_FLUSH_BITES", "1", "names no setting"),
        ("segstore", "ANABRANCH_SEGSTORE_DATA_DIR", None, "is required and missing"),
        ("controller", "ANABRANCH_CONTROLLER_NATS_URL", None, "reaches nobody outside"),
        ("controller", "ANABRANCH_CONTROLLER_NATS_MONITOR_URL", None, "reaches nobody outside"),
        ("gateway", "ANABRANCH_GATEWAY_BIND", None, "reaches nobody outside"),
        ("segstore", "ANABRANCH_SEGSTORE_HEALTH_BIND", None, "reaches nobody outside"),
        ("anabranch", "ANABRANCH_NATS_ADDRESS", "nats://nats:4222", "belongs to another service"),
        ("gateway", "ANABRANCH_SEGSTORE_BIND", "0.0.0.0:1", "belongs to another service"),
        ("nats", "ANABRANCH_SEGSTORE_BIND", "0.0.0.0:1", "belongs to another service"),
        ("segstore", "ANABRANCH_SEGSTORE_FLUSH_BYTES", "many", "FLUSH_BYTES is wrong"),
    ],
)
def test_a_variable_that_does_not_fit_the_settings_is_found(
    compose: dict[str, Any], service: str, variable: str, value: str | None, complaint: str
) -> None:
    environment = compose["services"][service].setdefault("environment", {})
    environment[variable] = value
    if value is None:
        del environment[variable]

    found = deployment.wrong_variables(compose, SETTINGS)

    assert len(found) == 1
    assert found[0].startswith(f"{service}: {variable} ")
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("service", "key", "value", "complaint"),
    [
        ("redis", "healthcheck", {}, "no health check"),
        ("nats", "stop_grace_period", "", "no stop_grace_period"),
        ("nats", "stop_grace_period", "soon", "no stop_grace_period"),
        ("segstore", "stop_grace_period", "20s", "must be over 20s"),
        ("gateway", "depends_on", ["nats"], "must wait for service_healthy"),
        ("gateway", "depends_on", {"nats": {"condition": "service_started"}}, "must wait"),
    ],
)
def test_a_service_without_a_proper_life_is_found(
    compose: dict[str, Any], service: str, key: str, value: object, complaint: str
) -> None:
    compose["services"][service][key] = value

    found = deployment.wrong_lifetimes(compose)

    assert len(found) == 1
    assert found[0].startswith(f"{service}: ")
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("cap_drop", [], "cap_drop"),
        ("security_opt", [], "no-new-privileges"),
        ("read_only", False, "read_only"),
        ("ports", ["8080:8080"], "open to other machines"),
    ],
)
def test_a_right_that_is_not_needed_is_found(
    compose: dict[str, Any], key: str, value: object, complaint: str
) -> None:
    compose["services"]["gateway"][key] = value

    found = deployment.wrong_rights(compose)

    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("ANABRANCH_CONTROLLER_TIER2_URL", "", "controller: no tier 2 is named"),
        ("ANABRANCH_CONTROLLER_TIER2_URL", "file:///data", "file:///data is no volume of its own"),
        ("volumes", ["another:/tier2"], "not the same tier 2"),
    ],
)
def test_a_tier_two_that_is_not_shared_is_found(
    compose: dict[str, Any], variable: str, value: object, complaint: str
) -> None:
    controller = compose["services"]["controller"]
    (controller if variable == "volumes" else controller["environment"])[variable] = value

    found = deployment.wrong_sharing(compose)

    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize("url", [None, "", "redis://elsewhere:6379", "redis"])
def test_a_controller_that_is_not_told_where_redis_is_is_found(
    compose: dict[str, Any], url: str | None
) -> None:
    environment = compose["services"]["controller"]["environment"]
    environment["ANABRANCH_CONTROLLER_REDIS_URL"] = url
    if url is None:
        del environment["ANABRANCH_CONTROLLER_REDIS_URL"]

    (found,) = deployment.wrong_redis(compose)

    assert found.startswith("controller: ANABRANCH_CONTROLLER_REDIS_URL")


def test_a_volume_that_the_user_of_the_image_cannot_write_to_is_found() -> None:
    dockerfile = DOCKERFILE.replace("chown 10001:10001 /data /tier2", "chown 10001:10001 /data")

    assert deployment.unowned_mounts(COMPOSE, dockerfile) == [
        "controller: /tier2 does not belong to the image's user",
        "segstore: /tier2 does not belong to the image's user",
    ]


@pytest.mark.parametrize(
    ("good", "bad", "complaint"),
    [
        ("USER 10001:10001", "USER root", "USER root is no number"),
        ("USER 10001:10001", "USER 1000", "USER 1000 is no number"),
        ("USER 10001:10001", "", "no USER"),
        ("STOPSIGNAL SIGTERM", "", "no STOPSIGNAL"),
        ('ENTRYPOINT ["/opt/anabranch/bin/part"]', "ENTRYPOINT part", "not in exec form"),
        ("HEALTHCHECK", "# HEALTHCHECK", "no HEALTHCHECK"),
        ("python -P -m anabranch", "python -m anabranch", "without -P"),
        ("PYTHONSAFEPATH=1", "", "without PYTHONSAFEPATH"),
        ("COPY --from=builder /opt", "COPY deploy/probe.py /opt", "modes of somebody's umask"),
        ("chmod -R a+rX /opt/anabranch", "true", "modes of the checkout"),
    ],
)
def test_an_image_that_lacks_something_is_found(good: str, bad: str, complaint: str) -> None:
    assert good in DOCKERFILE

    found = deployment.wrong_image(DOCKERFILE.replace(good, bad))

    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("COPY gone.lock .", ["gone.lock"]),
        ("COPY --chown=1:1 deploy/gone.py deploy/there.py .", ["deploy/gone.py"]),
        ("COPY services/${PART}/x services/${PART}/x", ["services/a/x"]),
        ("RUN pip install \\\n    ./libs/gone \\\n    libs/lib", ["libs/gone"]),
        ("COPY --from=builder /opt/gone /opt/gone", []),
        ("# COPY libs/gone .", []),
    ],
)
def test_a_path_that_the_dockerfile_names_in_vain_is_found(
    tmp_path: Path, line: str, missing: list[str]
) -> None:
    for folder in ("deploy", "libs/lib", "services/a", "services/b/x"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "deploy" / "there.py").write_text("")

    assert deployment.missing_paths(f"FROM base\n{line}\n", ["a", "b"], tmp_path) == missing
