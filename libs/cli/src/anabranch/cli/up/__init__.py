"""An embedded cluster in one process tree: the command `up`, and the same for programs."""

from anabranch.cli.up.cluster import EmbeddedCluster, UpSettings, embedded_cluster

__all__ = ["EmbeddedCluster", "UpSettings", "embedded_cluster"]
