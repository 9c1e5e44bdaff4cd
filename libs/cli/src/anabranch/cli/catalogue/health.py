"""The commands for the health of a cluster, and for help with it."""

from anabranch.cli.catalogue.row import Command

HEALTH = (
    Command(
        "doctor",
        "doctor.command:doctor",
        "Check this machine and the cluster: versions, disks, clocks, limits, settings, health.",
        (
            "anabranch doctor",
            "anabranch doctor --local --data-dir out/anabranch",
            "anabranch doctor network-directories --local --directory /srv/nfs/tier2",
            "anabranch doctor disk-sync nats-sync --json",
        ),
    ),
    Command(
        "support-bundle",
        "support.command:support_bundle",
        "Collect logs, settings, states and findings in one file for your supporters, without "
        "secrets.",
        (
            "anabranch support-bundle",
            "anabranch support-bundle --since 2h --anonymous --out bundle.tar.gz",
        ),
    ),
)
