# peers_test.py - does peers.py say who is ahead, and workers.py how many workers? With programs
# that only claim to have done it.
# usage: peers_test.py BUILD       BUILD: the folder with the real `peer-side`, for its load
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = """#!/bin/sh
[ "$1" = --version ] && echo cc 1.2 && exit
echo %(name)s $1 >>"$PEERS_LOG"
rate=%(rate)d
[ "$5" = reactor ] && rate=$((rate * 2))
[ "$4" = stay ] && while read -r n; do
    echo %(name)s $1 again >>"$PEERS_LOG"
    awk "BEGIN { printf \\"RESULT ops=%%d seconds=%%.9f\\\\n\\", $n, $n / $rate }"
done
case $1 in
--load) echo $$ >>%(folder)s/loads; exec "$PEER_SIDE" --load ;;
grain-bytes) echo RESULT bytes=%(bytes)d ;;
*) awk "BEGIN { printf \\"RESULT ops=%%d seconds=%%.9f\\\\n\\", $3, $3 / $rate }" ;;
esac
"""
STANDS = """#!/bin/sh
sleep 1000 &
echo $! >>%(folder)s/sleepers
wait
"""
STAYS_TOO_LONG = """#!/bin/sh
cat >/dev/null
"""
FAILS = """#!/bin/sh
echo no memory >&2
exit 3
"""
TWO_ARE_SLOWER = """#!/bin/sh
echo $2 >>%(folder)s/counts
awk "BEGIN { printf \\"RESULT ops=%%d seconds=%%.9f\\\\n\\", $3, $3 / (1000000 - $2 * 200000) }"
"""
TOOLS = ("bash", "cat", "chmod", "cp", "dirname", "find", "mkdir", "rm", "sort", "tail")


def check(what, holds, *seen):
    if not holds:
        sys.exit("peers_test: FAILED: %s\n%s" % (what, "\n".join(map(str, seen))))
    print("peers_test: ok: " + what)


def program(folder, name, rate=1000, size=100, text=PROGRAM):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text % {"name": name, "folder": folder, "rate": rate, "bytes": size}
                   if "%" in text else text)
    os.chmod(path, 0o755)


def started(folder, wanted, *options, start=""):
    """peers.py, running"""
    start = "import peers, sys\n" + start + "\npeers.main(*sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-B", "-c", start, folder, wanted, *options],
                            cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, PEERS_LOG=os.path.join(folder, "log"),
                                     PEER_SIDE=os.path.join(sys.argv[1], "peer-side")))


def measured(folder, wanted, *options, start=""):
    """(status, JSON objects, what it said) of peers.py"""
    program = started(folder, wanted, *options, start=start)
    out, err = program.communicate()
    return program.returncode, [json.loads(line) for line in out.splitlines()][1:], err


def ratios(lines):
    return {d.get("peer", "best: %s" % d.get("best_peer")): d["ratio"] for d in lines}


def who_is_ahead(folder, others):
    program(folder, "peer-side", rate=600000, size=100)
    program(folder, "peer-epoll", rate=1200000)
    program(others, "go", rate=200000, size=2000)
    program(others, "erlang", rate=100000, size=300)
    program(others, "caf", rate=60000, size=400)
    program(others, "tokio", rate=900000, size=500)
    status, lines, said = measured(folder, "one")
    expected = {"go": 3, "erlang": 6, "caf": 10, "tokio": 0.6667, "best: tokio": 0.6667}
    check("more calls a second is ahead, the best is the nearest",
          status == 0 and ratios(lines) == expected and len(lines) == 2 * 5, lines, said)
    status, lines, said = measured(folder, "remote-1")
    check("remote rows have two more",
          status == 0 and {"go-rpc", "epoll"} < set(ratios(lines)), lines, said)
    status, lines, said = measured(folder, "grain-bytes")
    check("less memory is ahead", ratios(lines) == {"go": 20, "erlang": 3, "caf": 4, "tokio": 5,
                                                    "best: erlang": 3}, lines, said)


def versions(folder, others):
    with open(os.path.join(others, "go.version"), "w") as file:
        file.write("go 9.8\n")
    program(others, "go")
    out = started(folder, "one/go", "--quick").communicate()[0]
    check("the first line names the compilers", json.loads(out.splitlines()[0]) == {
        "name": "peers/versions", "parameters": {}, "versions": {"teff": "cc 1.2", "go": "go 9.8"}},
          out)


def in_turn(folder, others):
    os.remove(os.path.join(folder, "log"))
    program(others, "go", rate=3000000)
    lines = measured(folder, "ping/go")[1]
    check("one of them alone", ratios(lines) == {"go": 0.2, "best: go": 0.2}, lines)
    with open(os.path.join(folder, "log")) as file:
        ran = file.read().split("\n")
    check("they take turns", ran[-11:-1] == ["peer-side ping", "go ping"] * 5, ran)


def transports(folder, others):
    program(others, "go", rate=200000)
    lines = measured(folder, "remote-64/go")[1]
    found = {(d["parameters"]["transport"], d["parameters"]["workers"]): d["ratio"]
             for d in lines if "peer" in d}
    check("remote rows are there for each transport and number of workers",
          found == {("nng", 1): 3, ("nng", 2): 3, ("reactor", 1): 6, ("reactor", 2): 6}, lines)
    lines = measured(folder, "remote-1/go", "--transport", "reactor")[1]
    check("one transport alone", [d["parameters"].get("transport") for d in lines]
          == ["reactor"] * 4, lines)
    status, _, said = measured(folder, "remote-1/go", "--transport", "udp")
    check("no other transport", status == 2 and "invalid choice: 'udp'" in said, said)
    lines = measured(folder, "client-/go", "--quick", "--transport", "nng")[1]
    check("rows that begin alike", [d["name"] for d in lines if "peer" in d]
          == ["peers/client-1", "peers/client-64", "peers/client-1024"], lines)
    lines = measured(folder, "one/go")[1]
    check("local rows have none", not any("transport" in d["parameters"] for d in lines), lines)


def clients(folder, others):
    os.remove(os.path.join(folder, "log"))
    lines = measured(folder, "client-64/go", "--quick", "--transport", "nng")[1]
    with open(os.path.join(folder, "log")) as file:
        ran = file.read().split("\n")[:-1]
    check("a client of teff is beside what the others do between nodes",
          len(lines) == 2 and ran == ["peer-side client-64", "go remote-64"], ran, lines)


def for_dotnet(folder, others):
    for name, rate in (("orleans", 300000), ("akka", 150000), ("proto", 100000)):
        program(others, name, rate=rate)
    lines = measured(folder, "one", "--quick")[1]
    check("those for .NET are not built unless asked for",
          lines and not {"orleans", "akka", "proto"} & set(ratios(lines)), lines)
    lines = measured(folder, "one", "--quick", "--peers", "dotnet")[1]
    check("asked for, they are alone", ratios(lines) == {"orleans": 2, "akka": 4, "proto": 6,
                                                         "best: orleans": 2}, lines)
    os.remove(os.path.join(folder, "log"))
    lines = measured(folder, "client-1", "--quick", "--peers", "dotnet", "--transport", "nng")[1]
    with open(os.path.join(folder, "log")) as file:
        ran = file.read().split("\n")[:-1]
    check("Orleans has clients", ran == ["peer-side client-1", "orleans client-1"], ran, lines)
    os.remove(os.path.join(folder, "log"))
    lines = measured(folder, "ping", "--peers", "akka,go,orleans", "--busy", "both")[1]
    with open(os.path.join(folder, "log")) as file:
        ran = file.read().split("\n")[:-1]
    check("any peers, quiet and beside the load, ratios of each",
          [(d["parameters"]["workers"], d.get("peer", d.get("best_peer")), "busy" in d, d["ratio"],
            d["runs"]) for d in lines]
          == [(workers, peer, busy, ratio, 5) for workers in (1, 2) for peer, busy, ratio in
              (("go", False, 3), ("go", True, 3), ("akka", False, 4), ("orleans", False, 2),
               ("akka", True, 4), ("orleans", True, 2), ("orleans", False, 2),
               ("orleans", True, 2))], lines)
    check("those for .NET start once, and take turns with teff",
          ran.count("orleans ping") == 2
          and ran[-6:] == ["peer-side ping", "akka ping again", "orleans ping again"] * 2, ran)
    os.remove(os.path.join(folder, "loads"))
    program(others, "orleans", text=FAILS)
    status, lines, said = measured(folder, "one/orleans")
    check("one of them that fails has no ratio, and its words are passed on",
          status == 0 and lines[0]["ratio"] is None and lines[0]["stood_still"] == 2
          and "failed (3): no memory" in said, lines, said)
    program(others, "orleans", text=STAYS_TOO_LONG)
    lines, said = measured(folder, "one/orleans", start="peers.LONG_TIMEOUT_SECONDS = 2")[1:]
    check("one of them that stands still has no ratio, and it is said", lines[0]["ratio"] is None
          and "orleans, one with 1 workers: stands still: not done after 2 s" in said, said)


def bare(folder):
    """Its program is made with teff, and only it has rows of large frames."""
    lines = measured(folder, "remote-64KiB", "--transport", "reactor", "--quick")[1]
    check("large frames are beside the bare program", ratios(lines)
          == {"epoll": 1, "best: epoll": 1} and lines[1]["goal"] == 0.9, lines)
    lines = measured(folder, "remote-64", "--quick")[1]
    best = {d["parameters"]["transport"]: (d["best_peer"], d["goal"])
            for d in lines if "goal" in d}
    check("small frames are not, and each transport has a goal",
          best == {"nng": ("tokio", 1.5), "reactor": ("tokio", 3)}, lines)


def loads_of(folder):
    with open(os.path.join(folder, "loads")) as file:
        return file.read().split()


def until(what, holds, *seen):
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    check(what, holds(), *seen)


def beside_load(folder, others):
    lines = measured(folder, "one/go", "--quick")[1]
    check("no load unless it is asked for", lines and not any("busy" in d for d in lines)
          and not os.path.exists(os.path.join(folder, "loads")), lines)
    lines = measured(folder, "one/go", "--quick", "--busy")[1]
    loads = loads_of(folder)
    check("each line says that there was a load", lines and all(d["busy"] for d in lines), lines)
    check("two processes were, and are gone", len(loads) == 2 and not any(map(runs, loads)))
    program(others, "caf", text=STANDS)
    peers = started(folder, "one/caf", "--quick", "--busy")
    sleepers = os.path.join(others, "sleepers")
    until("it is in the middle", lambda: os.path.exists(sleepers))
    loads = loads_of(folder)[2:]
    check("the load computes at the lowest priority",
          [os.getpriority(os.PRIO_PROCESS, int(pid)) for pid in loads] == [19, 19], loads)
    peers.kill()
    peers.communicate()
    until("the load ends when the bench is killed", lambda: not any(map(runs, loads)), loads)
    with open(sleepers) as file:
        os.kill(int(file.read()), signal.SIGKILL)
    os.remove(sleepers)


def stands_still(folder, others):
    program(others, "caf", text=STANDS)
    _, lines, said = measured(folder, "grain-bytes/caf",
                              start="peers.LONG_TIMEOUT_SECONDS = 10")
    check("one that stands still has no ratio, and it is said",
          lines[0]["ratio"] is None and lines[0]["stood_still"] == 2
          and "caf, grain-bytes with 2 workers: stands still: not done after 10 s" in said,
          lines, said)
    with open(os.path.join(others, "sleepers")) as file:
        sleepers = file.read().split()
    until("what it has started is gone too",
          lambda: sleepers and not any(map(runs, sleepers)), sleepers)


def runs(pid):
    try:
        with open("/proc/%s/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def failing(folder, others):
    program(others, "caf", text=FAILS)
    status, lines, said = measured(folder, "one/caf")
    check("one that fails has no ratio, and its words are passed on",
          status == 0 and lines[0]["ratio"] is None and "failed (3): no memory" in said, said)
    program(folder, "peer-side", text=FAILS)
    status, lines, said = measured(folder, "one/go")
    check("teff must not fail", status == 1 and "teff failed" in said, lines, said)


def not_installed(folder):
    tools = os.path.join(folder, "tools")
    os.mkdir(tools)
    for name in TOOLS:
        os.symlink(shutil.which(name), os.path.join(tools, name))
    out = os.path.join(folder, "out")
    build = os.path.join(HERE, "peers", "build.sh")
    names = ("go", "erlang", "caf", "tokio", "orleans")
    done = subprocess.run([os.path.join(tools, "bash"), build, out, *names],
                          env={"PATH": tools}, capture_output=True, text=True)
    check("without tools nothing is built, and that is no failure",
          done.returncode == 0
          and all("%s is skipped: not installed" % name in done.stderr for name in names)
          and not any(n for n in os.listdir(out) if os.access(os.path.join(out, n), os.X_OK)
                      and os.path.isfile(os.path.join(out, n))), done.stderr, os.listdir(out))


def workers(folder):
    program(folder, "peer-side", text=TWO_ARE_SLOWER)
    out = subprocess.run([sys.executable, "-B", os.path.join(HERE, "workers.py"), folder,
                          "remote-64"], capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    check("two workers that are slower than one have a ratio below 1, on each transport",
          [(d["name"], d["parameters"]["transport"], d["median"], d["runs"]) for d in lines]
          == [("workers/remote-64", t, 0.75, 15) for t in ("nng", "reactor")], out)
    with open(os.path.join(folder, "counts")) as file:
        counts = file.read().split()
    check("pairs begin with each of them in turn", counts[-4:] == ["2", "1", "1", "2"] or
          counts[-4:] == ["1", "2", "2", "1"], counts)
    program(folder, "peer-side", text=FAILS)
    done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "workers.py"), folder,
                           "client-1", "--quick"], capture_output=True, text=True)
    check("a run that fails is a failure", done.returncode == 1 and not done.stdout
          and "a run failed" in done.stderr, done.stdout, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        others = os.path.join(folder, "peers")
        os.mkdir(others)
        who_is_ahead(folder, others)
        versions(folder, others)
        in_turn(folder, others)
        transports(folder, others)
        clients(folder, others)
        for_dotnet(folder, others)
        bare(folder)
        beside_load(folder, others)
        stands_still(folder, others)
        failing(folder, others)
        not_installed(folder)
        workers(folder)


if __name__ == "__main__":
    main()
