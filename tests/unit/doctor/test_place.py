"""Which addresses the checks use: options beat the environment, which beats the data directory."""

from dataclasses import replace
from pathlib import Path

from anabranch.cli.contexts import Context
from anabranch.cli.doctor.place import (
    MONITOR_VARIABLES,
    REDIS_VARIABLE,
    Named,
    data_dir_of,
    place_of,
    this_machine,
)
from anabranch.cli.doctor.sources.directory import Directory
from anabranch.cli.target import Target

HERE = Target(Context(data_dir="/data"), "--data-dir")
FAR = Target(Context(http="https://g.example"), "--http")
FOUND = Directory(
    exists=True, held=True, gateway="http://g", nats_monitor="http://m", redis="unix:///r",
    health={"segstore": "http://s"},
)  # fmt: skip


def test_a_data_directory_names_all_addresses() -> None:
    place = place_of(HERE, FOUND, Path("/data"), Named(), {})
    assert (place.gateway, place.nats_monitor, place.redis) == ("http://g", "http://m", "unix:///r")
    assert place.health == {"segstore": "http://s"}


def test_options_beat_the_environment_which_beats_the_directory() -> None:
    environment = {MONITOR_VARIABLES[0]: "http://e", REDIS_VARIABLE: "redis://e"}
    place = place_of(HERE, FOUND, Path("/data"), Named(nats_monitor="http://o"), environment)
    assert (place.nats_monitor, place.redis) == ("http://o", "redis://e")
    more = place_of(HERE, FOUND, Path("/data"), Named(health=("http://x",)), {})
    assert more.health == {"segstore": "http://s", "http://x": "http://x"}


def test_a_gateway_has_no_directory_here_unless_one_is_named() -> None:
    assert data_dir_of(FAR, None) is None
    assert data_dir_of(FAR, Path("/d")) == Path("/d")
    assert data_dir_of(HERE, None) == Path("/data")
    assert data_dir_of(replace(FAR, beside="/e"), None) == Path("/e")
    assert place_of(FAR, Directory(), None, Named(), {}).gateway == "https://g.example"


def test_the_address_is_shown_without_its_password() -> None:
    target = Target(Context(nats="nats://u:secret@h:4222"), "--nats")
    assert "secret" not in place_of(target, Directory(), None, Named(), {}).shown


def test_only_a_directory_without_a_cluster_is_absent() -> None:
    assert place_of(HERE, Directory(exists=True), Path("/data"), Named(), {}).absent
    assert not place_of(HERE, FOUND, Path("/data"), Named(), {}).absent
    assert not place_of(FAR, Directory(), None, Named(), {}).absent
    foreign = Directory(exists=True, foreign=True)
    assert not place_of(HERE, foreign, Path("/data"), Named(), {}).absent


def test_this_machine_alone_has_a_directory_and_no_target() -> None:
    assert this_machine(None, {"ANABRANCH_DATA_DIR": "/e"}).data_dir == Path("/e")
    assert this_machine(Path("/o"), {"ANABRANCH_DATA_DIR": "/e"}).data_dir == Path("/o")
    assert this_machine(None, {}).target is None
