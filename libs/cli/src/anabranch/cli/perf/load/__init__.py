"""Loads and their figures: payloads, pacing, awaited appends, scales, histograms.

The benchmark in `bench/` uses these modules too, so a user and the benchmark measure alike. Nothing
here prints, parses options or reads a clock: callers pass the clock.
"""
