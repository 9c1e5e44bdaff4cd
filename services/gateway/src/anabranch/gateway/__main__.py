"""Runs one gateway: ``python -m anabranch.gateway``."""

import sys
from functools import partial

from anabranch.common.runtime.garbage import collect_nothing_yet


def main() -> int:
    """Run until stopped; the process's exit code."""
    collect_nothing_yet()
    from anabranch.common.runtime.service import run_service, settings_or_exit
    from anabranch.gateway.settings import Settings
    from anabranch.gateway.wiring import run_gateway

    settings = settings_or_exit("gateway", Settings.from_environment)
    return run_service(
        "gateway",
        partial(run_gateway, settings),
        health_bind=settings.health_bind,
        log_level=settings.log_level,
        telemetry=settings.telemetry,
    )


if __name__ == "__main__":
    sys.exit(main())
