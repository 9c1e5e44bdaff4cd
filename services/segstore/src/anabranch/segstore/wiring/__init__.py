"""Builds a segment store from its settings and runs it. Only this package chooses the adapters.

    settings_check  checks before anything is opened, and limits from the settings
    parts           the objects that exist before the store serves
    log             the store's journal, and its node id
    buckets         the NATS buckets and the number of containers
    watching        metrics, load reports and the watch of the journal
    process         the store while it serves
    ending          the order in which the store stops
    run             the store's life from start to end

Start: settings → data directory and journal (lock, fence, scan; a journal in memory has none of
these) → tier 2 (probe) → NATS → number of containers → listen → announce → follow the placements.

Stop: refuse new requests, write accepted operations to the journal, notify the clients, end the
tasks, close the journal. If the journal ends, so does the store: the process exits with the
journal's error, and the next start recovers.
"""

from anabranch.segstore.wiring.run import serve
from anabranch.segstore.wiring.settings_check import check_settings, throttle_limits

__all__ = ["check_settings", "serve", "throttle_limits"]
