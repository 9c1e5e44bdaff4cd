"""Builds the controller from its settings and runs its parts until it is asked to stop.

surroundings    what every part is built in: settings, connections, clock
cluster         who is alive, who leads, where containers are
workflows       which steps aggregates have
controller      all parts of a controller
serving         their life, from the first to the last
"""

from anabranch.controller.wiring.cluster import LEASE_PREFIX
from anabranch.controller.wiring.run import run_controller

__all__ = ["LEASE_PREFIX", "run_controller"]
