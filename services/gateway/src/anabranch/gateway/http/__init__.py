"""The HTTP side: one file per resource; `problem` turns errors into answers."""
