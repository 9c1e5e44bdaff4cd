"""Entries of key-value tables, as commands ask for them, print them and load them."""
