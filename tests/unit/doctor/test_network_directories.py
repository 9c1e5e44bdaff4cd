"""The doctor's check of directories on network file systems, from recorded mount tables."""

from pathlib import Path

import pytest

from anabranch.cli.doctor.decisions.networks import Directories, Mounted, network_directories
from anabranch.cli.doctor.finding import CannotLook, Finding, Verdict
from anabranch.cli.doctor.machine import Machine
from anabranch.cli.doctor.place import Place
from anabranch.cli.doctor.sources.mounts import directories
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.storage.mounts import SETTING

TABLE = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
41 27 0:52 / /srv/nfs rw,relatime - nfs4 10.0.0.5:/export rw,vers=4.2,hard
42 27 0:53 / /srv/soft rw,relatime - nfs filer:/vol rw,vers=3,soft
43 27 0:54 / /srv/share rw,relatime - cifs //filer/share rw,vers=3.1.1
44 27 0:55 / /srv/host rw,relatime - 9p drvfs rw,trans=fd
45 27 0:56 / /srv/own rw,relatime - fuse.somefs somefs rw,user_id=0
46 27 0:57 / /srv/usb rw,relatime - fuseblk /dev/sdb1 rw,user_id=0
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    return path


def judged(table: Path, *paths: str, tier2: str = "", **environment: str) -> Finding:
    return network_directories(directories(map(Path, paths), tier2, environment, table))


@pytest.mark.parametrize(
    ("path", "verdict", "told"),
    [
        ("/srv/share/tier2", Verdict.FAILURE, "/srv/share/tier2 (cifs from //filer/share)"),
        ("/srv/soft", Verdict.FAILURE, "(nfs from filer:/vol)"),
        ("/srv/nfs/tier2", Verdict.WARNING, "(nfs4 from 10.0.0.5:/export)"),
        ("/srv/host/a", Verdict.WARNING, "(9p from drvfs)"),
        ("/srv/own", Verdict.WARNING, "(fuse.somefs from somefs): the doctor does not know"),
        ("/srv/usb", Verdict.OK, "/srv/usb (fuseblk)"),
        ("/data", Verdict.OK, "/data (ext4)"),
    ],
)
def test_a_directory_is_judged_by_its_file_system(
    table: Path, path: str, verdict: Verdict, told: str
) -> None:
    found = judged(table, path)
    assert found.verdict is verdict
    assert told in found.text
    assert bool(found.remedy) == (verdict is not Verdict.OK)


def test_an_accepted_file_system_is_a_note_and_one_that_never_serves_remains_a_failure(
    table: Path,
) -> None:
    assert SETTING in judged(table, "/srv/nfs").remedy
    accepted = judged(table, "/srv/nfs", **{SETTING: "accepted"})
    assert (accepted.verdict, SETTING in accepted.remedy) == (Verdict.NOTE, False)
    assert judged(table, "/srv/share", **{SETTING: "accepted"}).verdict is Verdict.FAILURE


def test_the_finding_names_the_directories_of_the_worst_kind_each_once(table: Path) -> None:
    url = "file:///srv/share/b"
    found = judged(table, "/data", "/srv/nfs", "/srv/share/a", "/srv/share/b", tier2=url)
    assert found.text.startswith(
        "/srv/share/a (cifs from //filer/share), /srv/share/b (cifs from //filer/share): "
    )
    assert directories((), "s3://bucket/prefix", {}, table).mounted == []


def test_a_machine_without_a_mount_table_is_no_finding(tmp_path: Path) -> None:
    found = judged(tmp_path / "none", "/data")
    assert (found.verdict, found.text) == (
        Verdict.OK, "no directory is on a network: /data (unknown)",
    )  # fmt: skip
    assert network_directories(Directories([Mounted("/d", None)], "refused")).verdict is Verdict.OK


async def test_the_directories_are_those_of_the_command_line_of_the_data_and_of_tier_2(
    tmp_path: Path,
) -> None:
    here = Place(None, tmp_path / "data", tier2=(tmp_path / "t").as_uri(), directories=(tmp_path,))
    found = await Machine(here, {}, SystemClock()).directories()
    assert [one.path for one in found.mounted] == [
        str(tmp_path), str(tmp_path / "data"), str(tmp_path / "t"),
    ]  # fmt: skip
    with pytest.raises(CannotLook, match="no directory"):
        await Machine(Place(None, None), {}, SystemClock()).directories()
