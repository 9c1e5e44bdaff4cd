"""``python -m kit.powerloss.planted_nats``: the command with a NATS server that syncs now and then.

What is acknowledged is then in the page cache for up to two minutes. A killed process loses
nothing by that; a loss of power does, and `kit.powerloss` must find it.
"""

import os
from pathlib import Path

from anabranch.cli import __main__ as program
from anabranch.cli.up import nats_config
from anabranch.cli.up.nats_config import Routes
from anabranch.common.runtime.nats_target import Login


def plant() -> None:
    """Have the server write as it does by default, and nobody check it."""
    written = nats_config.nats_config

    def without_syncs(
        port: int, monitor_port: int, store: Path, login: Login, routes: Routes | None = None
    ) -> str:
        text = written(port, monitor_port, store, login, routes)
        return text.replace("sync_interval: always", "sync_interval: 2m")

    nats_config.nats_config = without_syncs
    os.environ["ANABRANCH_CONTROLLER_NATS_SYNC"] = "unchecked"


if __name__ == "__main__":
    plant()
    program.main()
