"""The transaction aggregate: open, then with one outcome for ever."""
