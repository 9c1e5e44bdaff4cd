"""Requests of transactions."""
