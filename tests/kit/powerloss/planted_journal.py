"""``python -m kit.powerloss.planted_journal``: the command with a store that does not sync.

Its journal writes each commit and acknowledges it without a sync. A killed store loses nothing by
that; a loss of power does, and `kit.powerloss` must find it.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from anabranch.cli import __main__ as program
from anabranch.cli.up import cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.common.adapters.local_disk import LocalFile
from anabranch.segstore import __main__ as store

STORE = "store"


def with_planted_store(plan: ClusterPlan) -> Sequence[PartSpec]:
    """The usual parts, with this module in the store's place."""
    command = (sys.executable, "-P", "-m", "kit.powerloss.planted_journal", STORE)
    inline = {"ANABRANCH_SEGSTORE_JOURNAL_WRITER": "inline"}
    return [
        replace(part, command=command, environment={**part.environment, **inline})
        if part.name == "segstore"
        else part
        for part in cluster_parts(plan)
    ]


def main() -> int:
    """The command, or as its child the store that does not sync."""
    if sys.argv[1:] == [STORE]:
        LocalFile.write_synced = LocalFile.write  # type: ignore[method-assign]
        del sys.argv[1:]
        return store.main()
    kept = cluster.embedded_cluster.__wrapped__.__kwdefaults__  # type: ignore[attr-defined]
    kept["parts"] = with_planted_store
    program.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
