"""Tier 2 as its owner sees it: flush plans, fences, what a cut changes (pure)."""
