"""`python -m tests.soak`: soak a server for ten minutes, or as long as asked, and print the report."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.soak.directory import PROPERTIES
from tests.soak.report import PROBE_BOUND, report, write, wrong_of_neighbour, wrong_of_probes
from tests.soak.soak import Plan, soak

HOUR = 60


def main() -> int:
    """Return 0 where everything was right."""
    arguments = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10, help="how long (10)")
    arguments.add_argument("--hour", dest="minutes", action="store_const", const=HOUR, help="an hour")
    arguments.add_argument("--backend", choices=list(PROPERTIES), default=Plan.backend, help="(%(default)s)")
    arguments.add_argument("--clients", type=int, default=Plan.clients, help="how many ask at once (%(default)s)")
    arguments.add_argument("--seed", type=int, default=Plan.seed, help="of the questions and manners (%(default)s)")
    arguments.add_argument(
        "--probe-bound", type=float, default=PROBE_BOUND, help="milliseconds that 99%% of probes may take (%(default)g)"
    )
    arguments.add_argument("--write", action="store_true", help="write the report into docs/explanation/reliability.md")
    options = arguments.parse_args()
    plan = Plan(60 * options.minutes, options.clients, seed=options.seed, backend=options.backend)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = asyncio.run(soak(plan, Path(folder)))
    found.wrong += wrong_of_probes(found, options.probe_bound)
    found.wrong += wrong_of_neighbour(found)
    text = report(found)
    print(text)
    if found.wrong:
        print("".join(found.log), file=sys.stderr)
    for each in found.wrong:
        print("WRONG:", each, file=sys.stderr)
    if options.write and not found.wrong:
        write(text)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
