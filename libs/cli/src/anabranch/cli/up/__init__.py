"""An embedded cluster in one process tree: the command `up`, and the same for programs."""

from anabranch.cli.up.cluster import EmbeddedCluster, embedded_cluster
from anabranch.cli.up.settings import UpSettings

__all__ = ["EmbeddedCluster", "UpSettings", "embedded_cluster"]
