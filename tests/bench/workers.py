# workers.py - calls between processes with one worker and with two, in turn: ratios pair by pair.
# usage: workers.py BUILD [ROW] [--quick] [--transport nng|reactor|both]
#   BUILD: the folder with the program `peer-side`
#   ROW: as in peers.py; `remote-` and `client-` are all rows that begin so (without: these two)
# Prints a JSON object for each row and transport. A ratio above 1: two workers do more. A run is
# long, as the number of workers that run is chosen in its first quarter of a second.
import argparse
import json
import os
import statistics
import sys

from peers import LOCAL, QUICK_N, ROWS, TRANSPORTS, Case, Side, rows_of
from programs import fitting, rounded

ROUNDS = 15
LONGER = 5  # times as long as the other benches' runs


def measure(program, row, transport, quick):
    """Prints the line of a row. out: False: a run failed."""
    one, two = (Side("teff", [program], Case(row, workers, TRANSPORTS), transport)
                for workers in (1, 2))
    one.n = two.n = QUICK_N[row] if quick else LONGER * fitting(one.run, *ROWS[row])
    for i in range(1 if quick else ROUNDS):
        for side in (one, two) if i % 2 else (two, one):
            if side.once() is None:
                return False
    ratios = sorted(b / a for a, b in zip(one.values, two.values))
    quarter = len(ratios) // 4
    print(json.dumps({
        "name": "workers/" + row, "parameters": {"transport": transport}, "unit": "times",
        "median": rounded(statistics.median(ratios)), "min": rounded(ratios[0]),
        "quartiles": [rounded(ratios[quarter]), rounded(ratios[-1 - quarter])],
        "max": rounded(ratios[-1]), "runs": len(ratios),
        "calls_per_second": {"one": rounded(statistics.median(one.values)),
                             "two": rounded(statistics.median(two.values))}}), flush=True)
    return True


def main(*args):
    parser = argparse.ArgumentParser(prog="workers", allow_abbrev=False)
    parser.add_argument("build")
    parser.add_argument("row", nargs="?", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--transport", choices=(*TRANSPORTS, "both"), default="both")
    options = parser.parse_args(args)
    rows = [row for row in rows_of(options.row) if row not in LOCAL]
    if not rows:
        parser.error("rows: %s" % ", ".join(row for row in ROWS if row not in LOCAL))
    transports = TRANSPORTS if options.transport == "both" else (options.transport,)
    program = os.path.join(options.build, "peer-side")
    ended = [measure(program, row, transport, options.quick)
             for row in rows for transport in transports]
    sys.exit(0 if all(ended) else "workers: a run failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
