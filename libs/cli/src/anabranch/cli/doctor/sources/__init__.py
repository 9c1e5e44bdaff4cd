"""The sources of the checks: each gathers facts about this machine or one server, and decides
nothing."""
