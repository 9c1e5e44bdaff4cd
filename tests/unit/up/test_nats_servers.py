"""Three NATS servers for one, and logs in JetStream: what each part of the cluster is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.up.choices import Wish
from anabranch.cli.up.command import Logs, up
from anabranch.cli.up.directory import claim
from anabranch.cli.up.parts import ClusterPlan, NatsPorts, NatsProbe, cluster_parts
from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.nats_target import Login

LOGIN = Login.of("anabranch", "drawn at random")
THREE: dict[str, Any] = {
    "nats_monitor_port": 21010,
    "nats_route_port": 21020,
    "more_nats": (NatsPorts(21001, 21011, 21021), NatsPorts(21002, 21012, 21022)),
}


def test_three_nats_servers_form_one_cluster_with_a_folder_and_a_name_each(tmp_path: Path) -> None:
    with claim(tmp_path, Wish(3)) as directory:
        plan = ClusterPlan(directory, Path("/bin/nats"), 21000, 3, 4, 8, LOGIN, **THREE)
        parts = cluster_parts(plan)
        names = ["nats", "nats-2", "nats-3"]
        configs = [directory.run_file(f"{name}.conf").read_text() for name in names]

    assert [part.name for part in parts[:3]] == names
    assert all(part.needs == tuple(names) for part in parts[3:])
    routes = [f"nats-route://anabranch:drawn%20at%20random@127.0.0.1:2102{n}" for n in range(3)]
    for number, (name, config) in enumerate(zip(names, configs, strict=True)):
        assert parts[number].probe == NatsProbe(21000 + number, 21010 + number, tmp_path / name)
        assert f"server_name: {json.dumps(name)}" in config
        assert f'listen: "127.0.0.1:2102{number}"' in config
        assert f"routes: {json.dumps(routes)}" in config
        assert f"store_dir: {json.dumps(str(tmp_path / name))}" in config
        assert config.count("authorization {") == 2
        assert "sync_interval: always" in config


def test_every_service_knows_all_nats_servers(tmp_path: Path) -> None:
    with claim(tmp_path, Wish(3, "jetstream")) as directory:
        plan = ClusterPlan(directory, Path("/bin/nats"), 21000, 3, 4, 8, LOGIN, **THREE)
        parts = cluster_parts(plan)

    urls = "nats://127.0.0.1:21000,nats://127.0.0.1:21001,nats://127.0.0.1:21002"
    monitors = "http://127.0.0.1:21010,http://127.0.0.1:21011,http://127.0.0.1:21012"
    for part, program in zip(parts[3:], ("CONTROLLER", "SEGSTORE", "GATEWAY"), strict=True):
        assert part.environment[f"ANABRANCH_{program}_NATS_URL"] == urls
    store = parts[4].environment
    assert store["ANABRANCH_SEGSTORE_NATS_MONITOR_URLS"] == monitors
    assert store["ANABRANCH_SEGSTORE_LOG_REPLICAS"] == "3"


@pytest.mark.parametrize(
    ("choices", "journal", "replicas", "loss"),
    [
        (Wish(), "disk", None, None),
        (Wish(3), "disk", None, None),
        (Wish(1, "jetstream"), "jetstream", "1", "accepted"),
        (Wish(replication=3), "replicated", None, "accepted"),
    ],
)
def test_the_kind_of_log_reaches_the_stores(
    tmp_path: Path, choices: Wish, journal: str, replicas: str | None, loss: str | None
) -> None:
    with claim(tmp_path, choices) as directory:
        plan = ClusterPlan(directory, Path("/bin/nats"), 21000, 3, 4, 8, LOGIN)
        store = cluster_parts(plan)[2].environment

    assert store["ANABRANCH_SEGSTORE_JOURNAL"] == journal
    assert store.get("ANABRANCH_SEGSTORE_LOG_REPLICAS") == replicas
    assert store.get("ANABRANCH_SEGSTORE_TIER2_LOSS") == loss


@pytest.mark.parametrize("count", [0, 2, 4, -1])
def test_a_number_of_nats_servers_that_makes_no_sense_is_refused(
    tmp_path: Path, count: int
) -> None:
    with pytest.raises(InvalidSetting, match="1 or 3 NATS servers"):
        up(data_dir=tmp_path / "new", nats=count)
    assert not (tmp_path / "new").exists()


def test_an_ephemeral_cluster_has_no_logs_in_jetstream() -> None:
    with pytest.raises(InvalidSetting, match="keeps no logs") as refused:
        up(ephemeral=True, logs=Logs(log="jetstream"))
    assert refused.value.remedy == "omit --log or --ephemeral"


def test_another_choice_than_that_of_the_directory_is_refused(tmp_path: Path) -> None:
    with claim(tmp_path):
        pass
    with pytest.raises(InvalidSetting, match="another choice"):
        up(data_dir=tmp_path, nats=3)


def test_the_number_of_replicas_reaches_the_controllers(tmp_path: Path) -> None:
    with claim(tmp_path, Wish(replication=3)) as directory:
        plan = ClusterPlan(directory, Path("/bin/nats"), 21000, 3, 4, 8, LOGIN)
        controller = cluster_parts(plan)[1].environment

    assert controller["ANABRANCH_CONTROLLER_REPLICATION"] == "3"


@pytest.mark.parametrize(
    ("logs", "spus", "words"),
    [
        (Logs(replication=3), 1, "need as many stores"),
        (Logs(replication=3), 2, "need as many stores"),
        (Logs(replication=0), 3, "1 to 7 replicas"),
        (Logs(replication=8), 9, "1 to 7 replicas"),
        (Logs("jetstream", 3), 3, "journals of several stores"),
    ],
)
def test_replicas_that_make_no_sense_are_refused(
    tmp_path: Path, logs: Logs, spus: int, words: str
) -> None:
    with pytest.raises(InvalidSetting, match=words):
        up(data_dir=tmp_path / "new", spus=spus, logs=logs)
    assert not (tmp_path / "new").exists()


def test_an_ephemeral_cluster_has_no_replicas() -> None:
    with pytest.raises(InvalidSetting, match="keeps no logs"):
        up(ephemeral=True, spus=3, logs=Logs(replication=3))


def test_a_directory_with_replicas_is_not_started_with_fewer_stores(tmp_path: Path) -> None:
    with claim(tmp_path, Wish(replication=3)):
        pass
    with pytest.raises(InvalidSetting, match="need as many stores") as refused:
        up(data_dir=tmp_path)
    assert "--spus 3" in refused.value.remedy
