"""Runs a client program: `python -m tests.clients.programs PROGRAM RESULTS CASE...`."""

import importlib
import sys
from pathlib import Path

from tests.clients.programs.cases import run

if __name__ == "__main__":  # and not where a client starts processes of its own
    _, program, results, *names = sys.argv
    importlib.import_module(f"tests.clients.programs.{program}")
    run(names, Path(results))
