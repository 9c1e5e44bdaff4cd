"""Reads between two cuts: planning, dividing, decoding. Batches and micro-batches use it."""
