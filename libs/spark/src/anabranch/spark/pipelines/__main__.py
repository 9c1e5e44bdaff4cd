"""`python -m anabranch.spark.pipelines`: list the pipelines, or run the one that is named.

python -m anabranch.spark.pipelines                  one JSON object per pipeline
python -m anabranch.spark.pipelines NAME [argument…]
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module

from anabranch.spark.pipelines.catalogue import CATALOGUE, PACKAGE, row_of

EXIT_USAGE = 2


def main(words: Sequence[str]) -> int:
    """List, or run to the end of the process; returns the exit code."""
    if not words:
        for row in CATALOGUE:
            sys.stdout.write(json.dumps(asdict(row)) + "\n")
        return 0
    chosen = row_of(words[0])
    if chosen is None:
        names = ", ".join(each.name for each in CATALOGUE)
        sys.stderr.write(f"there is no pipeline {words[0]}; the pipelines are {names}\n")
        return EXIT_USAGE
    from anabranch.spark.pipelines.frame import run_program

    sys.argv = list(words)
    run_program(import_module(f"{PACKAGE}.{chosen.module}").PIPELINE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
