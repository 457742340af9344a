# upgrade.py FOLDER - a rolling upgrade, one step back, and again to its end, under load.
#
# Three silos of the old build, whose clients call all the time. Each silo leaves and comes back in
# the other build, on the same address: new, old again, then new one by one. Checked: no call of a
# client has an outcome but an ordinary one; no acknowledged call is lost and none runs twice; the
# new method is answered as soon as one new silo is ready; what the new build writes into a state
# survives the old build that loads, changes and saves it.
#
# Before that: a store that an earlier teff has left, kept.sql, is still read, by both builds.
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile

KEYS = 16
KEPT_SUM = 2  # of each key of kept.sql, all signed
READY_S = 60
SIGNED = "k{0} {1} [k{0}] [k{0}] [k{0}] [k{0}] [k{0}] [k{0}]"

folder = sys.argv[1]


def program(name, build):
    return os.path.join(folder, f"upgrade_{name}_{build}")


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]


class Silo:
    def __init__(self, store, address):
        self.store, self.address, self.process = store, address, None

    def start(self, build):
        self.process = subprocess.Popen(
            [program("silo", build), "--quiet", "--store", self.store, "--listen", self.address],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("ready "), f"a silo of the {build} build said: {line!r}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(READY_S) == 0, "a silo did not leave in order"

    def roll(self, build):
        self.stop()
        self.start(build)


class Load:
    def __init__(self, build, addresses):
        self.process = subprocess.Popen(
            [program("client", build), "load", str(KEYS)] + addresses,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    # out: for each key acknowledged and unknown calls; the errors.
    def end(self):
        out, _ = self.process.communicate(timeout=READY_S)
        assert self.process.returncode == 0, "a call had an outcome that it must not have"
        lines = [line.split() for line in out.splitlines()]
        return ([(int(a), int(b)) for key, a, b in (x for x in lines if len(x) == 3)],
                {x[0]: int(x[1]) for x in lines if len(x) == 2})


def ask(mode, addresses):
    return subprocess.run([program("client", "new"), mode, str(KEYS)] + addresses, check=True,
                          stdout=subprocess.PIPE, text=True, timeout=READY_S).stdout


def run(silos, loads, addresses):
    for silo in silos:
        silo.start("old")
    loads += [Load("old", addresses), Load("old", addresses)]
    silos[0].roll("new")
    print("signed by the first new silo; calls that found none:", ask("sign", addresses).strip())
    loads.append(Load("new", addresses))
    silos[1].roll("new")
    ended = [loads.pop().end()]  # the new caller's: then the new build goes again
    silos[0].roll("old")
    silos[1].roll("old")
    ended.append(Load("old", addresses).end())  # old silos change and save every state
    for silo in silos:
        silo.roll("new")
    while loads:
        ended.append(loads.pop().end())
    return ended


def check_kept(path, address):
    store = sqlite3.connect(path)
    with open(os.path.join(os.path.dirname(__file__), "kept.sql"), encoding="ascii") as kept:
        store.executescript(kept.read())
    store.close()
    silo = Silo(f"sqlite:{path}", address)
    try:
        silo.start("new")
        assert ask("read", [address]) == "".join(
            SIGNED.format(i, KEPT_SUM) + "\n" for i in range(KEYS))
        silo.roll("old")
        Load("old", [address]).end()
        silo.roll("new")
        assert ask("read", [address]) == "".join(
            SIGNED.format(i, KEPT_SUM + 1) + "\n" for i in range(KEYS))
        silo.stop()
    finally:
        silo.process.kill()


def check(ended, read):
    assert all(counts for counts, _ in ended)
    for i, line in enumerate(read.splitlines()):
        acked = sum(counts[i][0] for counts, _ in ended)
        unknown = sum(counts[i][1] for counts, _ in ended)
        total = int(line.split()[1])
        assert line == SIGNED.format(i, total), f"lost from the state: {line}"
        assert acked <= total <= acked + unknown, f"{line}: {acked} acknowledged, {unknown} unknown"
        assert acked > 0
    print("calls acknowledged:", sum(sum(a for a, _ in counts) for counts, _ in ended),
          "errors:", [errors for _, errors in ended])


def main():
    with tempfile.TemporaryDirectory() as scratch:
        addresses = [free_address() for _ in range(3)]
        check_kept(f"{scratch}/kept.db", free_address())
        silos = [Silo(f"sqlite:{scratch}/store.db", address) for address in addresses]
        loads = []
        try:
            ended = run(silos, loads, addresses)
            check(ended, ask("read", addresses))
            for silo in silos:
                silo.stop()
        finally:
            for child in [silo.process for silo in silos] + [load.process for load in loads]:
                if child and child.poll() is None:
                    child.kill()
                    child.wait()


main()
