"""Which file systems may hold tier 2, from texts of /proc/self/mountinfo."""

from pathlib import Path, PurePosixPath

import pytest

from anabranch.common.adapters.chunk_url import open_chunk_storage
from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.mounts import (
    NETWORK,
    SETTING,
    WITHOUT_LINKS,
    OnNetwork,
    is_network,
    mount_at,
    mount_of,
    parse_mounts,
    refusal,
)

RECORDED = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resv_strict,resuid=65534
30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k
41 27 0:52 / /srv/nfs rw,relatime shared:88 - nfs4 10.0.0.5:/export rw,vers=4.2,rsize=1048576,hard,proto=tcp,timeo=600,local_lock=none,addr=10.0.0.5
42 27 0:53 / /srv/soft rw,relatime - nfs filer:/vol rw,vers=3,soft,proto=tcp,timeo=100
43 27 0:54 / /srv/windows\040share rw,relatime - cifs //filer/share rw,vers=3.1.1,cache=strict
44 27 0:55 / /srv/ssh rw,nosuid,nodev - fuse.sshfs me@host:/data rw,user_id=0,group_id=0
45 27 0:56 / /srv/ceph rw,relatime - ceph 10.0.0.6:6789:/ rw,name=admin,acl
46 27 0:57 / /srv/lustre rw,relatime master:3 - lustre 10.0.0.7@tcp:/scratch rw,flock
47 27 0:58 / /srv/gluster rw,relatime - fuse.glusterfs host:/vol rw,user_id=0
48 27 0:59 / /srv/host rw,relatime - 9p drvfs rw,dirsync,trans=fd
49 41 254:0 /disk /srv/nfs/local rw,relatime - xfs /dev/vdb rw,attr2
50 27 0:60 / /srv/covered rw,relatime - ext4 /dev/vdc rw
51 50 0:61 / /srv/covered rw,relatime - nfs4 10.0.0.5:/other rw,vers=4.1,hard
damaged line
52 27 0:62 / /srv/short - nfs4
"""  # noqa: E501 - lines of the kernel
LOCAL = ("/", "/data/tier2", "/dev/shm/tier2", "/srv/nfs/local/tier2", "/srv/nfsx/tier2")
CHOSEN = {
    "/srv/nfs/tier2": "nfs4",
    "/srv/ceph/tier2": "ceph",
    "/srv/lustre/a/b": "lustre",
    "/srv/gluster/tier2": "fuse.glusterfs",
    "/srv/host/tier2": "9p",
    "/srv/covered/tier2": "nfs4",
}
NEVER = {
    "/srv/soft/tier2": "nfs",
    "/srv/windows share/tier2": "cifs",
    "/srv/ssh/tier2": "fuse.sshfs",
}


def refusal_in(text: str, path: PurePosixPath, on_network: OnNetwork) -> InvalidSetting | None:
    return refusal(mount_of(path, parse_mounts(text)), str(path), on_network)


@pytest.mark.parametrize("path", LOCAL)
def test_a_file_system_of_this_machine_may_hold_tier_2(path: str) -> None:
    assert refusal_in(RECORDED, PurePosixPath(path), "refused") is None


@pytest.mark.parametrize(("path", "kind"), CHOSEN.items())
def test_a_network_file_system_is_refused_by_name_until_it_is_accepted(
    path: str, kind: str
) -> None:
    refused = refusal_in(RECORDED, PurePosixPath(path), "refused")
    assert refused is not None
    assert f"{kind}" in str(refused)
    assert SETTING in refused.remedy
    assert refusal_in(RECORDED, PurePosixPath(path), "accepted") is None


@pytest.mark.parametrize(("path", "kind"), NEVER.items())
def test_a_file_system_that_cannot_keep_the_promises_is_refused_even_if_accepted(
    path: str, kind: str
) -> None:
    refused = refusal_in(RECORDED, PurePosixPath(path), "accepted")
    assert refused is not None
    assert kind in str(refused)
    assert SETTING not in refused.remedy


def test_an_empty_or_strange_text_refuses_nothing() -> None:
    assert refusal_in("", PurePosixPath("/srv/nfs"), "refused") is None
    assert mount_of(PurePosixPath("/"), parse_mounts("a b c - d")) is None


@pytest.mark.parametrize("kind", sorted(NETWORK | WITHOUT_LINKS))
def test_every_known_network_file_system_is_refused_by_its_name(kind: str) -> None:
    refused = refusal_in(f"9 1 0:9 / /srv rw - {kind} host:/x rw", PurePosixPath("/srv"), "refused")
    assert refused is not None
    assert refused.fields["file_system"] == kind
    assert is_network(kind)


def test_a_directory_that_does_not_exist_yet_has_the_mount_that_it_will_be_on(
    tmp_path: Path,
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"9 1 0:9 / {tmp_path}/real rw - xfs /dev/vdb rw\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = mount_at(tmp_path / "link" / "a" / "b", table)
    assert found is not None
    assert (found.kind, found.source) == ("xfs", "/dev/vdb")
    assert mount_at(tmp_path / "other", table) is None
    assert mount_at(tmp_path / "link", tmp_path / "none") is None


async def test_a_store_refuses_a_directory_before_it_creates_anything_there(
    tmp_path: Path,
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"9 1 0:9 / {tmp_path} rw - nfs4 host:/x rw,hard\n")
    url = (tmp_path / "tier2").as_uri()
    with pytest.raises(InvalidSetting, match="nfs4"):
        await open_chunk_storage(url, SeededIds(1), "node-1", limit_s=60.0, mount_table=mounts)
    assert not (tmp_path / "tier2").exists()
    await open_chunk_storage(
        url, SeededIds(1), "node-1", limit_s=60.0, on_network="accepted", mount_table=mounts
    )
