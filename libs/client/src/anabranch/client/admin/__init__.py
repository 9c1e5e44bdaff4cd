"""Administration: streams, operations, containers, the cluster."""
