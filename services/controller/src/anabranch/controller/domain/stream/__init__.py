"""The stream aggregate: which segments a stream consists of, and its life."""
