"""Builds the controller from its settings and runs its parts until the process is asked to stop.

surroundings    dependencies of every part: settings, connections, clock
cluster         membership, leadership, placements, ownership of buckets
topics          SPUs, SPU groups, topics and partitions, with their controllers
runners         a workflow runner for each kind of aggregate
jobs            the periodic jobs
controller      all parts of a controller
serving         their start, service and orderly end
run             one controller in a process
"""

from anabranch.controller.wiring.cluster import LEASE_PREFIX
from anabranch.controller.wiring.run import run_controller

__all__ = ["LEASE_PREFIX", "run_controller"]
