"""Faults on real servers: ``PYTHONPATH=tests python -m faults --help``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mixed_group import MIXES

from faults.group import environment_seed
from faults.mixed_run import run_cycles
from faults.run import Options, run


def main() -> int:
    """Run, print the table, and fail where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kafka", default="1.1.1", help="the brokers' release")
    parser.add_argument("--seed", type=int, default=environment_seed())
    parser.add_argument("--folder", type=Path, help="an empty folder, to keep journals and logs in")
    parser.add_argument("--cycles", type=int, help="with Scala consumers, instead of all the above")
    parser.add_argument("--mix", choices=MIXES, default="range")
    arguments = vars(parser.parse_args())
    folder, cycles, mix = (arguments.pop(name) for name in ("folder", "cycles", "mix"))
    options = Options(**arguments)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    tell(f"seed {options.seed}")
    outcome = run(options, tell, folder) if cycles is None else run_cycles(mix, cycles, options.seed, tell)
    print(outcome.text())
    for line in outcome.wrong:
        print(f"WRONG: {line}")
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
