# sched.py - teff's scheduler beside other systems: runs each in turn, prints a JSON object a line.
# usage: sched.py BUILD [--quick] [ROW]
#   BUILD: the folder with the program `sched`; those of the others go to BUILD/peers
# A line's ratio is above 1 where teff is ahead, for times and throughputs alike.
import json
import os
import statistics
import sys

from programs import fitting_n, installed, rounded, run

PEERS = ("go", "erlang", "caf", "tokio")
WORKERS = (1, 2)
RUNS = 5
TIMEOUT_SECONDS = 30  # then it counts as standing still

# row: first n (fixed where the row says how many), unit, True where less is better
ROWS = {
    "ping-pong": (20000, "round trips/s", False),
    "ring": (20000, "hops/s", False),
    "counting": (20000, "messages/s", False),
    "fork-join-throughput": (60000, "messages/s", False),
    "fork-join-create": (10000, "processes/s", False),
    "big": (12000, "round trips/s", False),
    "chameneos": (10000, "meetings/s", False),
    "skynet": (1000000, "s", True),
    "timers": (20000, "timers/s", False),
    "fair": (500000, "round trips/s", False),
    "hog": (500000, "round trips/s", False),
    "idle-bytes": (200000, "bytes", True),
}
FIXED = {"skynet", "fair", "hog", "idle-bytes"}
N_MAX = 20000000
ON_PROCESSES = {"ping-pong", "ring", "counting", "fork-join-create", "idle-bytes"}
QUICK_N = {"skynet": 1000, "fair": 10000, "hog": 10000, "idle-bytes": 10000}


def value_of(row, result):
    if result is None:
        return None
    if row == "idle-bytes":
        return result["bytes"]
    return result["seconds"] if row == "skynet" else result["ops"] / result["seconds"]


class Series:
    """One system's results in one row with so many workers."""

    def __init__(self, name, program, row, workers, quick):
        self.name, self.program, self.row, self.workers = name, program, row, workers
        self.n = QUICK_N.get(row, ROWS[row][0]) if quick else ROWS[row][0]
        if not quick and row not in FIXED:
            self.n = fitting_n(program, row, workers, self.n, N_MAX, TIMEOUT_SECONDS)
        self.values, self.p99s = [], []
        self.stands = False

    def once(self):
        if self.stands: # it would not end this time either
            return
        result = run(self.program, self.row, self.workers, self.n, TIMEOUT_SECONDS)
        self.stands = result is None
        if not self.stands:
            self.values.append(value_of(self.row, result))
            self.p99s.append(result.get("p99_us", 0))


def best(peers, values_of, less):
    """(name, median) of the best of those that came to an end."""
    medians = [(statistics.median(values_of(s)), s.name) for s in peers if not s.stands]
    if not medians:
        return None, None
    value, name = min(medians) if less else max(medians)
    return name, value


def line(name, teff, peers, values_of, unit, less):
    """The JSON object: teff's figures, and how far it is ahead of the best of the others."""
    values = [] if teff.stands else values_of(teff)
    median = statistics.median(values) if values else None
    peer, peer_median = best(peers, values_of, less)
    ratio = None
    if median and peer_median:
        ratio = peer_median / median if less else median / peer_median
    out = {"name": "sched/" + name,
           "parameters": {"workers": teff.workers, "n": teff.n, "api": teff.name},
           "unit": unit, "median": rounded(median), "min": rounded(min(values, default=None)),
           "max": rounded(max(values, default=None)), "runs": len(values),
           "teff": rounded(median), "best_peer": peer, "peer": rounded(peer_median),
           "ratio": rounded(ratio),
           "peers": {s.name: None if s.stands else rounded(statistics.median(values_of(s)))
                     for s in peers}}
    print(json.dumps(out), flush=True)


def measure(row, teffs, peers, workers, quick):
    teffs, peers = ([Series(name, program, row, workers, quick) for name, program in programs]
                    for programs in (teffs, peers))
    for _ in range(1 if quick else RUNS):
        for one in teffs + peers:
            one.once()
    unit, less = ROWS[row][1:]
    for teff in teffs:
        line(row, teff, peers, lambda s: s.values, unit, less)
        if row in ("fair", "hog"):
            line(row + "-p99", teff, peers, lambda s: s.p99s, "us", True)


def main(build, *args):
    quick = "--quick" in args
    wanted = [a for a in args if a != "--quick"]
    teff = os.path.join(build, "sched")
    peers = installed(os.path.join(build, "peers"), PEERS)
    for row in ROWS:
        if wanted and wanted[0] not in ("", row):
            continue
        for workers in (2,) if row == "idle-bytes" else WORKERS:
            teffs = [("group", [teff]), ("process", [teff, "process"])]
            measure(row, teffs if row in ON_PROCESSES else teffs[:1], peers, workers, quick)


if __name__ == "__main__":
    main(*sys.argv[1:])
