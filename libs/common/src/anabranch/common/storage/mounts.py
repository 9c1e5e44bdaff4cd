"""Finds the mount of a directory, and decides whether its file system may hold tier 2.

    /proc/self/mountinfo ──parse_mounts──▶ mounts ──mount_of(path)──▶ the directory's mount
    mount ──refusal(accepted)──▶ InvalidSetting, or None

Only `mount_at` touches the machine; the rest works on the kernel's text.

Tier 2 in a directory rests on two promises: a name is created once (by `link`), and synced data
survive a power cut. The kernel keeps both for its own file systems. On a network file system they
depend on a server that a client cannot question: a server may acknowledge a sync before its disk
has the data, and a client may show a listing from its cache. The probe at start cannot see either.
Such a directory therefore requires the operator's word. A journal is refused there in any case.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from anabranch.common.errors import InvalidSetting

SETTING = "ANABRANCH_SEGSTORE_TIER2_NETWORK"
OnNetwork = Literal["refused", "accepted"]
MOUNT_TABLE = Path("/proc/self/mountinfo")

WITHOUT_LINKS = frozenset(
    ("cifs", "smb3", "smbfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys",
     "fuse.mount-s3", "fuse.rclone", "fuse.blobfuse", "fuse.blobfuse2", "fuse.davfs", "davfs",
     "fuse.hdfs", "fuse.fuse_dfs")
)  # fmt: skip
"""Kinds without an atomic `link` or a `sync` that means something: refused in any case."""
NETWORK = frozenset(
    ("nfs", "nfs4", "ceph", "fuse.ceph", "fuse.ceph-fuse", "fuse.cephfs", "glusterfs",
     "fuse.glusterfs", "lustre", "gpfs", "beegfs", "fuse.beegfs", "orangefs", "pvfs2", "afs",
     "coda", "9p", "fuse.juicefs", "fuse.seaweedfs", "fuse.mfs", "fuse.moosefs", "panfs", "weka",
     "wekafs", "ocfs2", "gfs2")
)  # fmt: skip
"""Kinds that can keep the promises, if their servers and options are right."""
_NFS = ("nfs", "nfs4")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_FIELDS_BEFORE_MAX = 5


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo: where, the kind of the file system, its source and its options."""

    point: PurePosixPath
    kind: str
    source: str
    options: frozenset[str]


def is_network(kind: str) -> bool:
    """Whether a kind of file system is one of another machine, or is shared with one."""
    return kind in NETWORK or kind in WITHOUT_LINKS


def mount_at(path: Path, table: Path = MOUNT_TABLE) -> Mount | None:
    """The mount on which a directory is, or will be; blocks.

    None: the machine has no mount table, or the path cannot be resolved.
    """
    try:
        text = table.read_text(errors="surrogateescape")
        return mount_of(PurePosixPath(path.resolve()), parse_mounts(text))
    except OSError:
        return None


def parse_mounts(text: str) -> list[Mount]:
    """The mounts of a mountinfo text, in its order; a line of another form is left out."""
    found = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if not separator or len(fields) <= _FIELDS_BEFORE_MAX or len(rest) < 2:
            continue
        options = {*fields[5].split(","), *(rest[2].split(",") if len(rest) > 2 else ())}
        point = PurePosixPath(_unescaped(fields[4]))
        found.append(Mount(point, rest[0], _unescaped(rest[1]), frozenset(options)))
    return found


def mount_of(path: PurePosixPath, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that holds an absolute path without links; of equal points, the later one."""
    holding = [mount for mount in mounts if path.is_relative_to(mount.point)]
    return max(reversed(holding), key=lambda mount: len(mount.point.parts), default=None)


def refusal(mount: Mount | None, path: str, on_network: OnNetwork) -> InvalidSetting | None:
    """The error for a tier 2 at `path`, on this mount; None if tier 2 may lie there."""
    if mount is None:
        return None
    if mount.kind in WITHOUT_LINKS:
        return _refused(
            "the file system cannot create a name only once, or cannot sync",
            "use a local directory, or an object store by its own URL, such as s3://bucket/prefix",
            mount, path,
        )  # fmt: skip
    if mount.kind not in NETWORK:
        return None
    if mount.kind in _NFS and "soft" in mount.options:
        return _refused(
            "the NFS mount is soft: a write may fail although the server performs it",
            "mount it with hard", mount, path,
        )  # fmt: skip
    if on_network == "accepted":
        return None
    return _refused(
        "tier 2 is on a network file system, whose server's promises cannot be checked",
        f"use an object store or a local disk; if the server syncs before it answers and clients "
        f"cache no names, set {SETTING}=accepted",
        mount, path,
    )  # fmt: skip


def _refused(what: str, remedy: str, mount: Mount, path: str) -> InvalidSetting:
    return InvalidSetting(
        what, remedy=remedy, path=path, file_system=mount.kind, mount=str(mount.point)
    )


def _unescaped(text: str) -> str:
    """mountinfo writes blanks, tabs, line ends and backslashes in octal."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
