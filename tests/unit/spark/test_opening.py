"""What a worker of Spark keeps between its tasks."""

import gc

from anabranch.spark.places.opening import spare_imported


def test_a_worker_exempts_what_it_has_imported_from_garbage_collection_once() -> None:
    spare_imported.cache_clear()
    try:
        spare_imported()
        exempt = gc.get_freeze_count()
        assert exempt > 10_000
        later: list[list[int]] = [[] for _ in range(1_000)]
        spare_imported()
        assert gc.get_freeze_count() <= exempt
        assert len(later) == 1_000
    finally:
        gc.unfreeze()
