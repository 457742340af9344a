# peers.py - grains beside other systems' actors: each in turn with teff, ratios pair by pair.
# usage: peers.py BUILD [ROW[/PEER]] [--peers dotnet] [--quick] [--busy]
#                 [--transport nng|reactor|both]
#   BUILD: the folder with the program `peer-side`; those of the others go to BUILD/peers
#   --peers dotnet: beside those for .NET, whose building downloads packages; else the others
#   --quick: each once, with small figures
#   --busy: beside two processes of the lowest priority that compute
#   --transport: teff's in the rows remote-... and client-...
# Prints a JSON object with the compilers, then one for each row, number of workers, transport and
# peer, and one for the best of them; a ratio is above 1 where teff is ahead, in calls a second and
# in bytes alike.
import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import sys

from programs import fitting_n, installed, rounded, run

LOCAL = ("one", "ping", "random", "random-named", "fan-out", "activate", "grain-bytes")
WIRE = ("remote-1", "remote-64", "remote-1024", "client-1", "client-64", "client-1024")
BLOBS = ("remote-64KiB", "remote-1MiB")
# peer: its system, more arguments of the system's program, its rows
PEERS = {
    "go": ("go", [], LOCAL + WIRE),
    "go-rpc": ("go", ["rpc"], WIRE),
    "erlang": ("erlang", [], LOCAL + WIRE),
    "caf": ("caf", [], LOCAL + WIRE),
    "tokio": ("tokio", [], LOCAL + WIRE),
    "epoll": ("epoll", [], WIRE + BLOBS),
    "orleans": ("orleans", [], LOCAL + WIRE),
    "akka": ("akka", [], LOCAL + WIRE[:3]),
    "proto": ("proto", [], LOCAL + WIRE[:3]),
}
DOTNET = ("orleans", "akka", "proto")
WITH_CLIENTS = ("teff", "orleans")  # the others' clients are nodes as any other
WARM_SECONDS, QUICK_WARM_SECONDS = 10, 1  # of .NET's programs
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
    "remote-64KiB": (400, 100000, 0.9),
    "remote-1MiB": (40, 10000, 0.9),
    "client-1": (2000, 1000000, 3),
    "client-64": (6400, 5000000, 3),
    "client-1024": (20480, 10000000, 3),
    "grain-bytes": (1000000, 1000000, 4),
}
QUICK_N = {"activate": 5000, "remote-1": 500, "remote-64": 6400, "remote-1024": 10240,
           "remote-64KiB": 400, "remote-1MiB": 40, "client-1": 500, "client-64": 6400,
           "client-1024": 10240, "grain-bytes": 200000}
TRANSPORTS = ("nng", "reactor")
LOADS = 2
RUNS = 5
BYTES_RUNS = 3
TIMEOUT_SECONDS = 30  # then it counts as standing still
LONG_TIMEOUT_SECONDS = 120  # of grain-bytes, and of .NET with its warm-up
STOOD_MAX = 2  # it is not run any more in that row then

Case = collections.namedtuple("Case", "row workers transport")  # transport: None in local rows


class Side:
    """One system in one case."""

    def __init__(self, name, command, case, quick):
        self.name, self.command, self.case = name, command, case
        self.row = case.row
        if name == "teff" and case.transport:
            self.command = command + ["--transport", case.transport]
        if name not in WITH_CLIENTS:
            self.row = case.row.replace("client-", "remote-")
        self.less = case.row == "grain-bytes"
        long = self.less or name in DOTNET
        self.timeout = LONG_TIMEOUT_SECONDS if long else TIMEOUT_SECONDS
        self.stood, self.values = 0, []
        self.n = QUICK_N.get(case.row, 20000)
        if not quick:
            self.n = fitting_n(self.command, self.row, case.workers, *ROWS[case.row][:2],
                               self.timeout)

    def once(self):
        """A figure; None when it stands still or failed."""
        if self.stood == STOOD_MAX:
            return None
        result = run(self.command, self.row, self.case.workers, self.n, self.timeout)
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


def line(case, busy, ratios, more):
    parameters = {"workers": case.workers}
    if case.transport:
        parameters["transport"] = case.transport
    out = {"name": "peers/" + case.row, "parameters": parameters, "unit": "times",
           "ratio": rounded(statistics.median(ratios) if ratios else None),
           "median": rounded(statistics.median(ratios) if ratios else None),
           "min": rounded(min(ratios, default=None)), "max": rounded(max(ratios, default=None)),
           "runs": len(ratios)}
    if busy:
        out["busy"] = True
    out.update(more)
    print(json.dumps(out), flush=True)


def measure(case, programs, options):
    """False: teff itself did not come to an end."""
    teff = Side("teff", programs["teff"], case, options.quick)
    found = {}
    more = "bytes" if teff.less else "calls_per_second"
    for name, command in programs.items():
        if name == "teff" or case.row not in PEERS[name][2]:
            continue
        peer = Side(name, command, case, options.quick)
        begin = len(teff.values)
        runs = 1 if options.quick else BYTES_RUNS if teff.less else RUNS
        ratios = paired(teff, peer, runs)
        values = {s.name: rounded(statistics.median(v)) if v else None
                  for s, v in ((teff, teff.values[begin:]), (peer, peer.values))}
        line(case, options.busy, ratios, {"peer": name, "stood_still": peer.stood, more: values})
        if ratios:
            found[name] = ratios
    if not teff.values and teff.once():
        line(case, options.busy, [], {"best_peer": None, more: {"teff": rounded(teff.values[0])}})
    if found:
        best = min(found, key=lambda name: statistics.median(found[name]))
        line(case, options.busy, found[best], {"best_peer": best, "goal": ROWS[case.row][2]})
    return teff.stood == 0


def wanted(options):
    """Names of peers."""
    if options.peer:
        return [options.peer]
    return [n for n in PEERS if (n in DOTNET) == (options.peers == "dotnet")]


def chosen(build, names):
    """name -> command of teff and of the peers that are there"""
    systems = list(dict.fromkeys(PEERS[name][0] for name in names))
    there = dict(installed(os.path.join(build, "peers"), [s for s in systems if s != "epoll"]))
    there["epoll"] = [os.path.join(build, "peer-epoll")]
    programs = {"teff": [os.path.join(build, "peer-side")]}
    for name in names:
        system, more, _ = PEERS[name]
        if system in there:
            programs[name] = there[system] + more
    return programs


def print_versions(programs):
    """By which compilers the programs were made; epoll's was teff's."""
    asked = subprocess.run(programs["teff"] + ["--version"], capture_output=True, text=True)
    versions = {"teff": asked.stdout.strip()}
    for name, command in programs.items():
        path = command[0] + ".version"
        if os.path.exists(path):
            with open(path) as file:
                versions[PEERS[name][0]] = file.read().strip()
    print(json.dumps({"name": "peers/versions", "parameters": {}, "versions": versions}),
          flush=True)


def cases(row, options):
    """Those of a row."""
    transports = (None,)
    if row not in LOCAL:
        transports = TRANSPORTS if options.transport == "both" else (options.transport,)
    counts = (2,) if options.quick or row == "grain-bytes" else (1, 2)
    return [Case(row, workers, transport) for transport in transports for workers in counts]


@contextlib.contextmanager
def load(program):
    """Processes that compute until their input ends: also when this one is killed."""
    loads = [subprocess.Popen([program, "--load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
             for _ in range(LOADS)]
    try:
        for one in loads:
            one.stdout.readline()
        yield
    finally:
        for one in loads:
            one.communicate()


def parsed(args):
    parser = argparse.ArgumentParser(prog="peers", allow_abbrev=False)
    parser.add_argument("build")
    parser.add_argument("what", nargs="?", default="", metavar="ROW[/PEER]")
    parser.add_argument("--peers", choices=("dotnet",))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--transport", choices=(*TRANSPORTS, "both"), default="both")
    options = parser.parse_args(args)
    options.row, _, options.peer = options.what.partition("/")
    if options.row not in ("", *ROWS) or options.peer not in ("", *PEERS):
        parser.error("rows: %s; peers: %s" % (", ".join(ROWS), ", ".join(PEERS)))
    return options


def main(*args):
    options = parsed(args)
    os.environ["PEERS_WARM_SECONDS"] = str(QUICK_WARM_SECONDS if options.quick else WARM_SECONDS)
    programs = chosen(options.build, wanted(options))
    print_versions(programs)
    beside = load(programs["teff"][0]) if options.busy else contextlib.nullcontext()
    with beside:
        ended = [measure(case, programs, options)
                 for row in ROWS if options.row in ("", row) for case in cases(row, options)]
    sys.exit(0 if all(ended) else "peers: teff failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
