"""The report of a demo for people: a page of checks, figures and plots, and its place."""
