"""Builds the project's distributions, and tries them where nothing of the project is.

    build    sdist of every distribution ──▶ wheel out of the sdist ──▶ out/dist, checked
    pythons  the interpreters of this machine; one that is missing is said
    trial    per interpreter: empty environments, outside of the repository, with our parts from
             out/dist and other packages from the package index
    program  the programs that run there

`__main__` runs all of it and prints a table. A failed step ends the trial of its environment, not
the run.
"""
