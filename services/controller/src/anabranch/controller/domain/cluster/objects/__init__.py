"""Decisions about SPUs, groups, topics and partitions: actions that follow from states. Pure."""
