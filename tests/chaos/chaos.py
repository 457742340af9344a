# chaos.py - a cluster of real processes under faults; each register's history is checked.
# usage: chaos.py BUILD [--engine NAME] [--minutes N] [--seed N] [--lease MS] [--transport NAME]
#                 [--network proxies|namespaces] [--only FAULT,...] [--plant BUG] [--keep]
#   Five silos and five clients, whose ways to each other and to the store can be cut.
#   Between two faults (faults.py) all must be well: each register answers, at 100 operations a
#   second and more. The seed decides which faults happen, but not how they fall together with
#   what the processes do. Ends with a line of figures; the status is 1 if something is wrong.
#   --network: proxies (proxy.py) that delay, lose and reorder frames, or namespaces of the silos'
#   own (namespaces.py), whose packets are dropped. Else the seed decides, where both are possible.
#   --plant: the silos have a bug (chaos_silo.c), or the clients (chaos_client.c); then the status
#   is 1 if it is not found.
import argparse
import asyncio
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import check
import clocks
import cluster
import faults
import namespaces
import proxy
import servers

SILOS = 5
RATE = 100         # operations a second before each fault
WELL_SECONDS = 60  # after a fault all must be well again
LAST_SECONDS = 120
VIEW_SECONDS = 2   # until each silo knows all others, so that registers are on all of them
SHOWN = 20         # problems in full
NEED_END = ("unread", "phantom", "torn")  # these need what the clients print at their end
KEYED = ("keyed", "repeated", "asked_again", "unanswered")
PLANTS = {"unsaved": "lost", "twice": "doubled", "stale": "stale_reads",  # what is found of each
          "keyless": "doubled", "reread": "wrong_answers", "split": "not_serializable"}


class Failed(Exception):
    pass


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--engine", choices=sorted(servers.ENGINES), default="postgres")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--lease", type=int, default=2000)
    parser.add_argument("--transport", choices=("nng", "reactor"), default="nng")
    parser.add_argument("--network", choices=("proxies", "namespaces"))
    parser.add_argument("--plant", choices=("none", *PLANTS), default="none")
    parser.add_argument("--only", default="", help="kill,pause: the faults, by their functions")
    parser.add_argument("--keep", action="store_true", help="keep the logs and histories")
    settings = parser.parse_args(arguments)
    settings.rate = RATE
    settings.only = [name for name in settings.only.split(",") if name]
    for name in settings.only:
        if name not in faults.ALL:
            parser.error("--only: %s: one of %s expected" % (name, ", ".join(faults.ALL)))
    return settings


class Run:
    """One run: its server, its cluster and its history."""

    def __init__(self, settings):
        self.settings = settings
        self.rng = random.Random(settings.seed)
        self.folder = tempfile.mkdtemp(prefix="teff-chaos-")
        os.chmod(self.folder, 0o755)
        self.history = check.History()
        self.began = time.monotonic()
        self.was_cut = False
        self.network = self.server = self.cluster = self.faults = self.supervisor = None

    def log(self, text):
        print("%7.1f  %s" % (time.monotonic() - self.began, text), flush=True)

    def make_network(self):
        """out: where the store's server listens."""
        seed, draw = self.rng.random(), self.rng.random()
        kind = self.settings.network or ("namespaces" if draw < 0.5 and namespaces.are_allowed()
                                         else "proxies")
        self.log("the network: %s" % kind)
        spaces = kind == "namespaces"
        self.network = namespaces.Network() if spaces else proxy.Network(random.Random(seed))
        self.network.open()
        return ["127.0.0.1"] + [namespaces.STORE_HOST] * spaces

    def draw_rates(self):
        """out: two silos with clocks that are fast or slow, and one with a wrong wall clock."""
        rates = [self.rng.uniform(1 - clocks.SKEW, 1 + clocks.SKEW) for _ in range(2)]
        return {1: rates[0], 2: rates[1], 3: 0} if "jump_clock" in self.faults.only else {}

    async def begin(self):
        store = os.path.join(self.folder, "store")
        os.mkdir(store)
        hosts = self.make_network()
        self.server = servers.ENGINES[self.settings.engine](store, hosts)
        self.server.prepare()
        self.server.start()
        self.cluster = cluster.Cluster(self.settings.build, self.folder, self.server,
                                       self.network, self.settings)
        self.faults = faults.Faults(self.cluster, self.rng, self.settings.lease / 1000,
                                    self.settings.only, self.log)
        self.settings.rates = self.draw_rates()
        for i in range(SILOS):
            await self.cluster.add_silo(i + 1, servers.free_port())
        if not self.faults.kinds():
            raise Failed("none of these faults can happen here")
        self.cluster.start_silos()
        await self.wait_until(lambda: all(s.is_ready() for s in self.cluster.silos),
                              "the silos do not start")
        await asyncio.sleep(VIEW_SECONDS)
        self.cluster.start_clients()

    async def wait_until(self, is_true, otherwise):
        end = time.monotonic() + WELL_SECONDS
        while not is_true():
            if self.supervisor and self.supervisor.done():
                self.supervisor.result()  # it raises what has ended it
            if time.monotonic() > end:
                raise Failed(otherwise)
            await asyncio.sleep(0.05)

    async def become_well(self):
        since = time.monotonic()
        try:
            await self.wait_until(lambda: self.cluster.is_well(since),
                                  "not well again after %d s" % WELL_SECONDS)
        except Failed:
            silent = [k for k in range(cluster.KEYS) if self.cluster.last_ok.get(k, 0) <= since]
            unready = [s.name for s in self.cluster.silos if not s.is_ready()]
            self.log("silent registers: %s; silos that do not serve: %s; %d operations a second" %
                     (silent, unready, len(self.cluster.recent)))
            for silo in self.cluster.silos:
                silo.send(signal.SIGUSR1)
            await asyncio.sleep(1)
            raise
        if self.cluster.ended_clients():
            raise Failed("clients have ended: %s" % self.cluster.ended_clients())

    async def disturb(self):
        self.supervisor = asyncio.ensure_future(self.cluster.supervise(self.history))
        end = time.monotonic() + 60 * self.settings.minutes
        try:
            await self.become_well()
            while time.monotonic() < end:
                await self.faults.run_round()
                await self.become_well()
            if not await self.cluster.stop_clients(LAST_SECONDS):
                raise Failed("the clients do not end")
            await asyncio.sleep(0.1)
        finally:
            self.supervisor.cancel()
            await asyncio.gather(self.supervisor, return_exceptions=True)
        self.cluster.read_clients(self.history)

    async def main(self):
        """out: what went wrong."""
        wrong = []
        try:
            await self.begin()
            await self.disturb()
        except (Failed, RuntimeError) as failed:
            wrong.append(str(failed))
            self.was_cut = True
        finally:
            self.close()
        if self.cluster:
            wrong += [crash for silo in self.cluster.silos for crash in silo.crashes]
        return wrong

    def close(self):
        if self.cluster:
            self.cluster.close()
        if self.server:
            self.server.close()
        if self.network:
            self.network.close()

    def print_figures(self, problems):
        outage, at, key = self.history.get_outage()
        print("the longest outage: register %d, from %.1f" % (key, at / 1e9 - self.began))
        found = {kind: sum(p.kind == kind for p in problems) for kind in check.KINDS}
        figures = {"operations": self.history.operations,
                   "transactions": len(self.history.pairs)}
        figures.update({name: self.history.keyed[name] for name in KEYED})
        figures.update({name: self.faults.counts[name] if self.faults else 0
                        for name in faults.COUNTED})
        figures.update(found, unknown=self.history.unknown, failed=self.history.failed,
                       longest_outage="%.1fs" % (outage / 1e9))
        print("chaos: %s seed=%d %s" % (self.settings.engine, self.settings.seed,
                                        " ".join("%s=%s" % f for f in figures.items())))


def print_problems(problems, wrong):
    for problem in problems[:SHOWN]:
        print("chaos: %s: register %d: %s" % problem)
    for text in wrong:
        print("chaos: %s" % text)


def has_failed(settings, problems, wrong):
    if settings.plant == "none":
        return bool(wrong or problems)
    return bool(wrong) or PLANTS[settings.plant] not in {problem.kind for problem in problems}


def main():
    settings = parse(sys.argv[1:])
    engine = servers.ENGINES[settings.engine]
    if not engine.is_installed():
        print("chaos: no %s server (package %s)" % (settings.engine, engine.package))
        return 1
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # writes to what has just been closed
    run = Run(settings)
    wrong = asyncio.run(run.main())
    problems = [p for p in run.history.check() if not run.was_cut or p.kind not in NEED_END]
    print_problems(problems, wrong)
    run.print_figures(problems)
    failed = has_failed(settings, problems, wrong)
    if failed or settings.keep:
        print("chaos: logs and histories are in %s" % run.folder)
    else:
        shutil.rmtree(run.folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
