"""Builds a segment store from its settings and runs it: the only place that knows adapters.

settings_check  what is told from the settings alone
parts           what exists before the store serves
log             the store's journal, and its own id
buckets         what the store needs in NATS before it knows its containers
watching        what it reports of itself
process         the store while it serves
ending          the order in which it stops
run             its life, from the first to the last

Start: settings → data directory and journal (lock, fence, scan; in memory there is neither) →
tier 2 (probe) → NATS → number of containers → listen → announce → follow the placements. Stop: no
new requests, what was accepted goes to the journal, clients are told, tasks end, the journal is
closed. What ends the journal ends the store: the process exits with the journal's error and a new
one recovers.
"""

from anabranch.segstore.wiring.run import serve
from anabranch.segstore.wiring.settings_check import check_settings, throttle_limits

__all__ = ["check_settings", "serve", "throttle_limits"]
