# peers.py - grains beside other systems' actors: each in turn with teff, ratios pair by pair.
# usage: peers.py BUILD [--quick] [ROW[/PEER]]
#   BUILD: the folder with the program `peer-side`; those of the others go to BUILD/peers
# Prints a JSON object for each row, number of workers and peer, and one for the best of them; a
# ratio is above 1 where teff is ahead, in calls a second and in bytes alike.
import json
import os
import statistics
import sys

from programs import fitting_n, installed, rounded, run

SYSTEMS = ("go", "erlang", "caf", "tokio")
# peer: the system's program with more arguments, and the rows it has, if not all
PEERS = {
    "go": ("go", [], ""),
    "go-rpc": ("go", ["rpc"], "remote-"),
    "erlang": ("erlang", [], ""),
    "caf": ("caf", [], ""),
    "tokio": ("tokio", [], ""),
}
# row: first n, most n, where to be ahead how many times
ROWS = {
    "one": (20000, 20000000, 3),
    "ping": (20000, 20000000, 3),
    "random": (64000, 20000000, 3),
    "random-named": (64000, 20000000, 3),
    "fan-out": (20000, 20000000, 3),
    "activate": (10000, 500000, 3),
    "remote-1": (2000, 1000000, 3),
    "remote-64": (6400, 5000000, 3),
    "remote-1024": (20480, 10000000, 3),
    "grain-bytes": (1000000, 1000000, 4),
}
QUICK_N = {"activate": 5000, "remote-1": 500, "remote-64": 6400, "remote-1024": 10240,
           "grain-bytes": 200000}
RUNS = 5
BYTES_RUNS = 3
TIMEOUT_SECONDS = 30  # then it counts as standing still
BYTES_TIMEOUT_SECONDS = 120
STOOD_MAX = 2  # it is not run any more in that row then


class Side:
    """One system in one row with so many workers."""

    def __init__(self, name, command, row, workers, quick):
        self.name, self.command, self.row, self.workers = name, command, row, workers
        self.less = row == "grain-bytes"
        self.timeout = BYTES_TIMEOUT_SECONDS if self.less else TIMEOUT_SECONDS
        self.stood, self.values = 0, []
        self.n = QUICK_N.get(row, 20000)
        if not quick:
            self.n = fitting_n(command, row, workers, *ROWS[row][:2], self.timeout)

    def once(self):
        """A figure; None when it stands still or failed."""
        if self.stood == STOOD_MAX:
            return None
        result = run(self.command, self.row, self.workers, self.n, self.timeout)
        if result is None:
            self.stood += 1
            return None
        value = result["bytes"] if self.less else result["ops"] / result["seconds"]
        self.values.append(value)
        return value


def paired(teff, peer, runs):
    """How far teff is ahead, for each pair of runs."""
    ratios = []
    for _ in range(runs):
        a, b = teff.once(), peer.once()
        if a and b:
            ratios.append(b / a if teff.less else a / b)
    return ratios


def line(side, ratios, more):
    out = {"name": "peers/" + side.row, "parameters": {"workers": side.workers}, "unit": "times",
           "ratio": rounded(statistics.median(ratios) if ratios else None),
           "median": rounded(statistics.median(ratios) if ratios else None),
           "min": rounded(min(ratios, default=None)), "max": rounded(max(ratios, default=None)),
           "runs": len(ratios)}
    out.update(more)
    print(json.dumps(out), flush=True)


def measure(row, workers, programs, quick):
    """False: teff itself did not come to an end."""
    teff = Side("teff", programs["teff"], row, workers, quick)
    found = {}
    more = "bytes" if teff.less else "calls_per_second"
    for name, command in programs.items():
        if name == "teff" or not row.startswith(PEERS[name][2]):
            continue
        peer = Side(name, command, row, workers, quick)
        begin = len(teff.values)
        runs = 1 if quick else BYTES_RUNS if teff.less else RUNS
        ratios = paired(teff, peer, runs)
        values = {s.name: rounded(statistics.median(v)) if v else None
                  for s, v in ((teff, teff.values[begin:]), (peer, peer.values))}
        line(peer, ratios, {"peer": name, "stood_still": peer.stood,
                            more: values})
        if ratios:
            found[name] = ratios
    if not teff.values and teff.once():
        line(teff, [], {"best_peer": None, more: {"teff": rounded(teff.values[0])}})
    if found:
        best = min(found, key=lambda name: statistics.median(found[name]))
        line(teff, found[best], {"best_peer": best, "goal": ROWS[row][2]})
    return teff.stood == 0


def chosen(build, wanted):
    """name -> command of teff and of the peers that are wanted and there"""
    names = [n for n in PEERS if wanted in ("", n)]
    systems = [s for s in SYSTEMS if any(PEERS[n][0] == s for n in names)]
    there = dict(installed(os.path.join(build, "peers"), systems))
    programs = {"teff": [os.path.join(build, "peer-side")]}
    for name in names:
        system, more, _ = PEERS[name]
        if system in there:
            programs[name] = there[system] + more
    return programs


def main(build, *args):
    quick = "--quick" in args
    row, _, peer = ([a for a in args if a != "--quick"] + [""])[0].partition("/")
    if row not in ("", *ROWS) or peer not in ("", *PEERS):
        sys.exit("peers: rows: %s; peers: %s" % (", ".join(ROWS), ", ".join(PEERS)))
    programs = chosen(build, peer)
    ended = [measure(one, workers, programs, quick)
             for one in ROWS if row in ("", one)
             for workers in ((2,) if quick or one == "grain-bytes" else (1, 2))]
    sys.exit(0 if all(ended) else "peers: teff failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
