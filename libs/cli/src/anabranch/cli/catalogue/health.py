"""The commands for the health of a cluster."""

from anabranch.cli.catalogue.row import Command

HEALTH = (
    Command(
        "doctor",
        "doctor.command:doctor",
        "Check this machine and the cluster: versions, disks, clocks, limits, settings, health.",
        (
            "anabranch doctor",
            "anabranch doctor --local --data-dir out/anabranch",
            "anabranch doctor disk-sync nats-sync --json",
        ),
    ),
)
