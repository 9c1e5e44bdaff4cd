"""What the systems are asked to do: one file per workload."""
