"""Settings of the garbage collector, which finds the cycles that reference counts do not free.

A full collection visits every object. In a service with its libraries loaded this took 20 ms,
several times a second under load, and determined the 99th percentile of its latencies. The objects
of the start live until the end, so the collector skips them, and it visits later objects less
often. Cycles are rare here; they live a little longer and hold some megabytes.

The imports leave next to nothing that could be freed: 1,600 objects of 187,000. The collections
meanwhile took a tenth of a second of a start, and a full one afterwards half of that, so a service
puts them off before its imports, and then sets everything apart as it is.
"""

import gc

YOUNG_COUNT = 50_000
"""New objects, less freed ones, between two collections of the youngest; the default is 700."""
GENERATION_COUNT = 20


def collect_nothing_yet() -> None:
    """Put off all collections until `set_apart_what_stays`. Call it before the imports."""
    gc.disable()


def set_apart_what_stays() -> None:
    """Exempt all present objects. Call it once, after all imports and before the work begins."""
    gc.freeze()
    gc.set_threshold(YOUNG_COUNT, GENERATION_COUNT, GENERATION_COUNT)
    gc.enable()
