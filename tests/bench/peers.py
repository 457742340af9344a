# peers.py - grains beside other systems' actors: each in turn with teff, ratios pair by pair.
# usage: peers.py BUILD [ROW[/PEER]] [--peers NAME,...] [--quick] [--busy [both]]
#                 [--transport nng|reactor|both]
#   BUILD: the folder with the program `peer-side`; those of the others go to BUILD/peers
#   ROW: `remote-` and `client-` are all rows that begin so
#   --peers: dotnet are those for .NET, whose building downloads packages; else the others
#   --quick: each once, with small figures
#   --busy: beside two processes of the lowest priority that compute; both: also without them
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

from programs import Staying, fitting, installed, rounded, run

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
# row: first n, most n
ROWS = {
    "one": (20000, 20000000),
    "ping": (20000, 20000000),
    "random": (64000, 20000000),
    "random-named": (64000, 20000000),
    "fan-out": (20000, 20000000),
    "activate": (10000, 500000),
    "remote-1": (2000, 1000000),
    "remote-64": (6400, 5000000),
    "remote-1024": (20480, 10000000),
    "remote-64KiB": (400, 100000),
    "remote-1MiB": (40, 10000),
    "client-1": (2000, 1000000),
    "client-64": (6400, 5000000),
    "client-1024": (20480, 10000000),
    "grain-bytes": (1000000, 1000000),
}
# row: how many times the best peer (beside epoll, which is what the machine can do) teff shall be;
# of two figures on nng and on the reactor; None: on nng a plain round trip of nng is the measure
GOALS = {
    "one": 2, "ping": 2, "random": 2, "random-named": 2, "fan-out": 2, "activate": 3,
    "grain-bytes": 4,
    "remote-1": (None, 1.1), "remote-64": (1.5, 3), "remote-1024": (1, 2),
    "remote-64KiB": (None, 0.9), "remote-1MiB": (None, 0.9),
    "client-1": (None, 1.1), "client-64": (1.5, 3), "client-1024": (1, 2),
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

Case = collections.namedtuple("Case", "row workers transports")  # transports: (None,) locally


class Side:
    """One system in one case."""

    def __init__(self, name, command, case, transport=None):
        self.name, self.command, self.workers = name, command, case.workers
        self.row = case.row
        if transport:
            self.command = command + ["--transport", transport]
        if name not in WITH_CLIENTS:
            self.row = case.row.replace("client-", "remote-")
        self.less = case.row == "grain-bytes"
        long = self.less or name in DOTNET
        self.timeout = LONG_TIMEOUT_SECONDS if long else TIMEOUT_SECONDS
        self.stood, self.values = 0, []
        self.n, self.staying = QUICK_N.get(case.row, 20000), None

    def fit(self, case):
        """Choose n, and start what is to stay: .NET's programs warm up for long."""
        n, n_max = ROWS[case.row]
        if self.name in DOTNET and not self.less:
            self.staying = Staying(self.command, self.row, self.workers, n)
        self.n = fitting(self.run, n, n_max)

    def run(self, n):
        if self.staying:
            return self.staying.run(n, self.timeout)
        return run(self.command, self.row, self.workers, n, self.timeout)

    def once(self):
        """A figure; None when it stands still or failed."""
        if self.stood == STOOD_MAX:
            return None
        result = self.run(self.n)
        if result is None:
            self.stood += 1
            return None
        value = result["bytes"] if self.less else result["ops"] / result["seconds"]
        self.values.append(value)
        return value

    def end(self):
        if self.staying:
            self.staying.end()


def fit_all(sides, case):
    for side in sides:
        side.fit(case)


def run_rounds(teffs, peers, rounds):
    """All of them in turn. out: {(transport, peer): how far teff is ahead in each round}"""
    ratios = collections.defaultdict(list)
    for side in (*teffs.values(), *peers):
        side.values = []
    for _ in range(rounds):
        mine = {transport: teff.once() for transport, teff in teffs.items()}
        for peer in peers:
            theirs = peer.once()
            for transport, value in mine.items():
                if value and theirs:
                    ratios[transport, peer.name].append(
                        theirs / value if peer.less else value / theirs)
    return ratios


def line(case, transport, busy, ratios, more):
    parameters = {"workers": case.workers}
    if transport:
        parameters["transport"] = transport
    out = {"name": "peers/" + case.row, "parameters": parameters, "unit": "times",
           "ratio": rounded(statistics.median(ratios) if ratios else None),
           "median": rounded(statistics.median(ratios) if ratios else None),
           "min": rounded(min(ratios, default=None)), "max": rounded(max(ratios, default=None)),
           "runs": len(ratios)}
    if busy:
        out["busy"] = True
    out.update(more)
    print(json.dumps(out), flush=True)


def goal(case, transport):
    of_row = GOALS[case.row]
    return of_row[TRANSPORTS.index(transport)] if transport else of_row


def median(values):
    return rounded(statistics.median(values)) if values else None


def measure_group(case, teffs, peers, busy, rounds):
    """Prints the lines of some peers. out: {(transport, busy, peer): ratios}"""
    ratios = run_rounds(teffs, peers, rounds)
    what = "bytes" if case.row == "grain-bytes" else "calls_per_second"
    for transport, teff in teffs.items():
        for peer in peers:
            line(case, transport, busy, ratios[transport, peer.name],
                 {"peer": peer.name, "stood_still": peer.stood,
                  what: {"teff": median(teff.values), peer.name: median(peer.values)}})
        if not peers and teff.values:
            line(case, transport, busy, [],
                 {"best_peer": None, what: {"teff": median(teff.values)}})
    return {(transport, busy, name): values for (transport, name), values in ratios.items()}


def best_lines(case, found):
    """Prints how far teff is ahead of the best peer, which large bodies have in epoll alone."""
    of_cell = collections.defaultdict(dict)
    for (transport, busy, name), values in found.items():
        if values and (name != "epoll" or case.row in BLOBS):
            of_cell[transport, busy][name] = values
    for (transport, busy), ratios in of_cell.items():
        best = min(ratios, key=lambda name: statistics.median(ratios[name]))
        line(case, transport, busy, ratios[best],
             {"best_peer": best, "goal": goal(case, transport)})


def measure(case, programs, options):
    """False: teff itself did not come to an end."""
    teffs = {transport: Side("teff", programs["teff"], case, transport)
             for transport in case.transports}
    peers = [Side(name, command, case) for name, command in programs.items()
             if name != "teff" and case.row in PEERS[name][2]]
    rounds = 1 if options.quick else BYTES_RUNS if case.row == "grain-bytes" else RUNS
    # .NET's programs stay for all of their rounds, and are not there in those of the others
    groups = [[peer for peer in peers if (peer.name in DOTNET) == dotnet]
              for dotnet in (False, True)]
    if not options.quick:
        fit_all(teffs.values(), case)
    found = {}
    for group in [group for group in groups if group] or [[]]:
        try:
            if not options.quick:
                fit_all(group, case)
            for busy in options.loads:
                with load(programs["teff"][0]) if busy else contextlib.nullcontext():
                    found.update(measure_group(case, teffs, group, busy, rounds))
        finally:
            for peer in group:
                peer.end()
    best_lines(case, found)
    return all(teff.stood == 0 for teff in teffs.values())


def wanted(options):
    """Names of peers."""
    if options.peer:
        return [options.peer]
    if options.peers:
        return [name for one in options.peers.split(",")
                for name in (DOTNET if one == "dotnet" else (one,))]
    return [name for name in PEERS if name not in DOTNET]


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


def rows_of(name):
    return [row for row in ROWS if name in ("", row) or name.endswith("-") and row.startswith(name)]


def cases(row, options):
    """Those of a row."""
    transports = (None,)
    if row not in LOCAL:
        transports = TRANSPORTS if options.transport == "both" else (options.transport,)
    counts = (2,) if options.quick or row == "grain-bytes" else (1, 2)
    return [Case(row, workers, transports) for workers in counts]


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
    parser.add_argument("--peers", metavar="NAME,...")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--busy", nargs="?", const="only", choices=("only", "both"))
    parser.add_argument("--transport", choices=(*TRANSPORTS, "both"), default="both")
    options = parser.parse_args(args)
    options.row, _, options.peer = options.what.partition("/")
    options.loads = {None: (False,), "only": (True,), "both": (False, True)}[options.busy]
    if not rows_of(options.row) or not {*wanted(options)} <= {*PEERS}:
        parser.error("rows: %s; peers: %s" % (", ".join(ROWS), ", ".join(PEERS)))
    return options


def main(*args):
    options = parsed(args)
    os.environ["PEERS_WARM_SECONDS"] = str(QUICK_WARM_SECONDS if options.quick else WARM_SECONDS)
    programs = chosen(options.build, wanted(options))
    print_versions(programs)
    ended = [measure(case, programs, options)
             for row in rows_of(options.row) for case in cases(row, options)]
    sys.exit(0 if all(ended) else "peers: teff failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
