"""The commands `anabranch perf …`: loads that measure a cluster and the machine that it runs on."""
