# faults.py - what may happen to a cluster. A fault begins, lasts, and is undone.
#
# A round has one fault, or two of different kinds at once. Times are drawn around the lease, so
# that some faults are over before it ends, and others last until silos have been declared dead.
import asyncio
import collections

from proxy import CLIENT, STORE, Rule

ALL = ("kill", "pause", "leave", "jump_clock", "split", "isolate", "strand", "cut_one_way",
       "cut_clients", "disturb", "cut_store", "kill_store", "pause_store")
COUNTED = ("kills", "partitions", "pauses", "leaves", "disturbances", "clock_jumps", "store_kills",
           "store_pauses")
OFTEN = {"kill": 2, "pause": 2}  # times as often as others


class Faults:
    """The faults of a run, counted. All draws come from rng, in the same order for a seed."""

    def __init__(self, cluster, rng, lease_seconds, only, log):
        """in: only: the names of the faults to draw from; empty: all. log: takes a text."""
        self.cluster, self.rng, self.lease = cluster, rng, lease_seconds
        self.only, self.log = only or ALL, log
        self.counts = collections.Counter()

    def draw_seconds(self):
        """A part of the lease, or up to three."""
        return self.lease * self.rng.choice((self.rng.uniform(0.1, 1), self.rng.uniform(1, 3)))

    def draw_silos(self, most=2):
        silos = list(self.cluster.silos)
        self.rng.shuffle(silos)
        return silos[:self.rng.randint(1, most)]

    def kinds(self):
        """out: the faults that can happen here: of processes, of the network, of the store."""
        can_not = set()
        if not any(silo.clock for silo in self.cluster.silos):
            can_not.add("jump_clock")
        if not self.cluster.server.process:
            can_not |= {"cut_store", "kill_store", "pause_store"}
        kinds = [[getattr(self, name) for name in names
                  if name in self.only and name not in can_not
                  for _ in range(OFTEN.get(name, 1))]
                 for names in (ALL[:4], ALL[4:10], ALL[10:])]
        return [kind for kind in kinds if kind]

    def draw_round(self):
        """out: coroutines, one a fault."""
        kinds = self.kinds()
        self.rng.shuffle(kinds)
        chosen = kinds[:2 if self.rng.random() < 0.3 else 1]
        return [self.rng.choice(kind) for kind in chosen]

    async def run_round(self):
        """Runs a round until all of it is undone."""
        faults = [fault() for fault in self.draw_round()]
        for name, undo in faults:
            self.log(name)
        await asyncio.gather(*[undo for _, undo in faults])

    # ---- processes ----

    def kill(self):
        silos, down = self.draw_silos(), self.rng.uniform(0, 2 * self.lease)
        self.counts["kills"] += len(silos)

        async def undo():
            await asyncio.sleep(down)
            for silo in silos:
                silo.start()

        for silo in silos:
            silo.kill()
        return "kill %s, down %.1f s" % (names(silos), down), undo()

    def leave(self):
        """SIGTERM; whatever has not ended is killed."""
        silos, limit = self.draw_silos(1), 10 * self.lease
        self.counts["leaves"] += len(silos)

        async def undo():
            for _ in range(int(limit * 20)):
                if not any(silo.runs() for silo in silos):
                    break
                await asyncio.sleep(0.05)
            for silo in silos:
                if silo.runs():
                    self.log("%s has not left after %.0f s" % (silo.name, limit))
                silo.kill()
                silo.start()

        for silo in silos:
            silo.leave()
        return "leave %s" % names(silos), undo()

    def pause(self):
        silos, seconds = self.draw_silos(), self.draw_seconds()
        self.counts["pauses"] += len(silos)

        async def undo():
            await asyncio.sleep(seconds)
            for silo in silos:
                silo.resume()

        for silo in silos:
            silo.pause()
        return "pause %s for %.1f s" % (names(silos), seconds), undo()

    def jump_clock(self):
        """A clock stays wrong for the rest of the run."""
        silo = self.rng.choice([silo for silo in self.cluster.silos if silo.clock])
        seconds = self.draw_seconds()
        self.counts["clock_jumps"] += 1
        jumped = silo.clock.jump(self.rng, seconds)
        return "clock of %s: now %s" % (silo.name, jumped), asyncio.sleep(self.lease)

    # ---- the network ----

    def apply(self, what, links, rule, counter="partitions"):
        """Sets the rule on links for a time."""
        network = self.cluster.network
        seconds, reset = self.draw_seconds(), self.rng.random() < 0.3 and network.knows_frames
        self.counts[counter] += 1

        async def undo():
            await asyncio.sleep(seconds)
            network.remove_rules(links, reset)

        network.add_rules({link: rule for link in links})
        return "%s for %.1f s%s" % (what, seconds, ", then reset" if reset else ""), undo()

    def split(self):
        """Two parts of the cluster do not reach each other; both reach the store."""
        here = self.draw_silos()
        there = [silo for silo in self.cluster.silos if silo not in here]
        links = [link for a in here for b in there for link in both(a.name, b.name)]
        return self.apply("split off %s" % names(here), links, Rule(held=True))

    def isolate(self):
        """A silo reaches nobody."""
        silo = self.draw_silos(1)[0]
        others = [other.name for other in self.cluster.silos if other is not silo]
        links = [link for name in others + [STORE, CLIENT] for link in both(silo.name, name)]
        return self.apply("isolate %s" % silo.name, links, Rule(held=True))

    def strand(self):
        """Silos reach their clients only: what they answer must not be stale."""
        silos = self.draw_silos()
        others = [silo.name for silo in self.cluster.silos if silo not in silos] + [STORE]
        links = [link for silo in silos for name in others for link in both(silo.name, name)]
        return self.apply("strand %s with its clients" % names(silos), links, Rule(held=True))

    def cut_one_way(self):
        """What a silo sends to others is held, but not what they send; or the reverse."""
        silo, sends = self.draw_silos(1)[0], self.rng.random() < 0.5
        others = [other.name for other in self.cluster.silos if other is not silo]
        others = others[:self.rng.randint(1, len(others))]
        links = [(silo.name, o) if sends else (o, silo.name) for o in others]
        return self.apply("cut %s %s %s" % (silo.name, "to" if sends else "from",
                                            " ".join(others)), links, Rule(held=True))

    def cut_clients(self):
        silo = self.draw_silos(1)[0]
        links = both(silo.name, CLIENT)
        links = links if self.rng.random() < 0.5 else [self.rng.choice(links)]
        return self.apply("cut clients and %s (%d ways)" % (silo.name, len(links)), links,
                          Rule(held=True))

    def disturb(self):
        """Delays, and sometimes losses and reordering, on all links between silos and clients; or
        losses of packets, which TCP sends again."""
        all_names = [silo.name for silo in self.cluster.silos] + [CLIENT]
        links = [(a, b) for a in all_names for b in all_names if a != b]
        rule = Rule(delay=self.rng.uniform(0, 0.05), jitter=self.rng.uniform(0, 0.1),
                    loss=self.rng.choice((0, 0, 0.02, 0.1)),
                    reorder=self.rng.choice((0, 0, 0.05, 0.3)))
        if not self.cluster.network.knows_frames:
            rule = Rule(loss=self.rng.uniform(0.01, 0.2))
            return self.apply("lose %.0f %% of the packets" % (100 * rule.loss), links, rule,
                              "disturbances")
        return self.apply("delay %.0f to %.0f ms, lose %g, reorder %g" % (
            1000 * rule.delay, 1000 * (rule.delay + rule.jitter), rule.loss, rule.reorder),
            links, rule, "disturbances")

    # ---- the store ----

    def cut_store(self):
        """Requests to the store are held, or only its responses; for one silo, some, or all."""
        silos = self.draw_silos(len(self.cluster.silos))
        ways = self.rng.choice((both, lambda a, b: [(b, a)]))
        links = [link for silo in silos for link in ways(silo.name, STORE)]
        return self.apply("cut %s and the store (%d ways)" % (names(silos),
                                                              len(links) // len(silos)),
                          links, Rule(held=True))

    def kill_store(self):
        server, down = self.cluster.server, self.rng.uniform(0, self.lease)
        self.counts["store_kills"] += 1

        async def undo():
            await asyncio.sleep(down)
            await asyncio.get_running_loop().run_in_executor(None, server.start)

        server.kill()
        return "kill the store, down %.1f s" % down, undo()

    def pause_store(self):
        server, seconds = self.cluster.server, self.draw_seconds()
        self.counts["store_pauses"] += 1

        async def undo():
            await asyncio.sleep(seconds)
            server.resume()

        server.pause()
        return "pause the store for %.1f s" % seconds, undo()


def names(silos):
    return " ".join(silo.name for silo in silos)


def both(a, b):
    return [(a, b), (b, a)]
