"""The ways to the cluster: the control plane over NATS, segment stores over TCP."""
