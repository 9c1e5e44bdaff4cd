"""The assignment strategies by name. A new one is a new row here."""

from collections.abc import Mapping

from anabranch.controller.domain.cluster.objects.assignment import least_loaded, round_robin
from anabranch.controller.domain.cluster.objects.assignment.values import Strategy

DEFAULT_STRATEGY = "round-robin-gap"
STRATEGIES: Mapping[str, Strategy] = {
    DEFAULT_STRATEGY: round_robin.assign,
    "least-loaded": least_loaded.assign,
}
