# check.py - is what clients saw of each register linearizable, did one activation at a time commit,
# and are transactions of two registers atomic and strictly serializable?
#
# Each write makes the next version of its register, and a read lists who wrote the last versions.
# So the order of the writes is known and need not be searched for. The history of a register is
# linearizable if and only if
# - a version has one writer and a write has one version ("doubled" otherwise, or "lost"),
# - a write whose call failed has none ("phantom"),
# - an operation that began after another had ended has seen its version, and a write has made a
#   later one (a read: "stale_reads"; a write, or a version that never comes back: "lost"),
# - a read sees no write that began after the read had ended ("phantom").
# A write with an idempotency key is one operation, however often its call was made. Its answer is
# that of its only version, also when the call is made again ("wrong_answers"), and a call that is
# the same as before is not refused ("refused").
# A transaction counts as one operation of each of its two registers; it writes both or none ("torn"
# otherwise). If each register's history is good, there must also be one order of all operations,
# which agrees with the versions and with time (serializable.py; "not_serializable" otherwise).
# Activations overlap if the versions of one lie between those of another, or if one answered before
# and after another ("overlapping").
import bisect
import collections

import serializable

WRITE, READ, AGAIN = "w", "r", "a"
KINDS = ("lost", "overlapping", "stale_reads", "doubled", "wrong_answers", "refused", "phantom",
         "torn", "not_serializable", "unread")

Problem = collections.namedtuple("Problem", "kind key text")
Done = collections.namedtuple("Done", "start end kind version activation")


class Register:
    """The history of one register."""

    def __init__(self, key):
        self.key = key
        self.done = []        # operations that succeeded
        self.started = {}     # {writer: when}
        self.failed = set()   # writers whose call failed for certain
        self.unknown = set()  # writers whose call has an unknown outcome
        self.facts = {}       # {version: (writer, activation, when it was first seen)}
        self.versions = {}    # {writer: version}
        self.answers = {}     # {writer: (version, activation) of its answer}
        self.again = []       # (writer, the same), of calls that were made again after that
        self.problems = []

    def report(self, kind, text, *values):
        self.problems.append(Problem(kind, self.key, text % values))

    def add(self, op):
        """in: a line of chaos_client.c."""
        if op["o"] == WRITE:
            self.add_write(op)
        if op["c"] != 0:
            if "n" in op and not op["u"]:
                self.report("refused", "write %d, which has a key: error %d", op["i"], op["c"])
            return
        if op["o"] == AGAIN:
            self.again.append((op["i"], op["v"], op["a"]))
        else:
            self.done.append(Done(op["s"], op["e"], op["o"], op["v"], op["a"]))
        for i, (writer, activation) in enumerate(op["t"]):
            self.add_fact(op["v"] - i, writer, activation, op["e"])

    def add_write(self, op):
        self.started[op["i"]] = op["s"]
        if op["c"] != 0:
            (self.unknown if op["u"] else self.failed).add(op["i"])
        else:
            self.answers[op["i"]] = op["v"], op["a"]

    def add_fact(self, version, writer, activation, seen):
        """Somebody saw at the time `seen` that writer made the version."""
        known = self.facts.setdefault(version, (writer, activation, seen))
        if known[:2] != (writer, activation):
            self.report("overlapping" if known[1] != activation else "lost",
                        "version %d was written by %d in activation %x and by %d in %x",
                        version, known[0], known[1], writer, activation)
        elif seen < known[2]:
            self.facts[version] = (writer, activation, seen)
        other = self.versions.setdefault(writer, version)
        if other != version:
            self.report("doubled", "write %d made the versions %d and %d", writer, other, version)

    # ---- at the end ----

    def check(self):
        """out: all problems."""
        self.done.sort()
        self.check_writers()
        self.check_gaps()
        self.check_order()
        self.check_commits()
        self.check_answers()
        self.check_effects()
        self.check_last_read()
        return self.problems

    def check_writers(self):
        for version, (writer, _, seen) in sorted(self.facts.items()):
            if writer not in self.started:
                self.report("phantom", "version %d: nobody sent write %d", version, writer)
            elif writer in self.failed:
                self.report("phantom", "version %d: write %d had failed", version, writer)
            elif seen < self.started[writer]:
                self.report("phantom", "version %d was seen before write %d began", version, writer)

    def check_gaps(self):
        """A version that nobody saw was made by a write with an unknown outcome, or comes to light
        as lost: each such write makes one version at most."""
        last = max(self.facts, default=0)
        unseen = len(self.unknown - set(self.versions))
        if last - len(self.facts) > unseen:
            self.report("phantom", "%d versions without a writer, but %d writes that may have "
                        "made one", last - len(self.facts), unseen)

    def get_floors(self):
        """out: ends, sorted, and for each the highest version of all that ended by then."""
        ends, floors = [], []
        for op in sorted(self.done, key=lambda op: op.end):
            ends.append(op.end)
            floors.append(max(op.version, floors[-1] if floors else 0))
        return ends, floors

    def check_order(self):
        ends, floors = self.get_floors()
        last = self.done[-1].version if self.done else 0

        def floor_at(start):
            at = bisect.bisect_left(ends, start)
            return floors[at - 1] if at else 0

        for op in self.done:
            floor = floor_at(op.start)
            if op.version < floor or op.kind == WRITE and op.version == floor:
                self.report("lost" if op.kind == WRITE or last < floor else "stale_reads",
                            "%s of version %d by activation %x at %d, after version %d had been "
                            "seen", "read" if op.kind == READ else "write", op.version,
                            op.activation, op.start, floor)
        for writer in sorted(self.unknown & set(self.versions)):
            if self.versions[writer] <= floor_at(self.started[writer]):
                self.report("lost", "write %d made version %d although version %d had been seen "
                            "before it began", writer, self.versions[writer],
                            floor_at(self.started[writer]))

    def check_commits(self):
        """The versions of an activation follow each other."""
        ended, now = set(), None
        for version, (_, activation, _) in sorted(self.facts.items()):
            if activation == now:
                continue
            if activation in ended:
                self.report("overlapping", "activation %x committed version %d after %x had "
                            "committed", activation, version, now)
            ended.add(now)
            now = activation

    def check_answers(self):
        """An activation was there from the first end to the last start of its answers."""
        spans = {}
        for op in self.done:
            first, last = spans.get(op.activation, (op.end, op.start))
            spans[op.activation] = min(first, op.end), max(last, op.start)
        until, by = 0, None
        for (first, last), activation in sorted((span, a) for a, span in spans.items()):
            if first < last and first < until:
                self.report("overlapping", "activation %x answered from %d to %d, activation %x "
                            "to %d", activation, first, last, by, until)
            if first < last and last > until:
                until, by = last, activation

    def check_effects(self):
        """A write is answered with its own version, and with the same answer each time."""
        for writer, answer in sorted(self.answers.items()):
            made = self.versions.get(writer)
            committed_by = self.facts[answer[0]][1] if answer[0] in self.facts else None
            if (made, committed_by) != answer:
                self.report("wrong_answers", "write %d made version %s, and was answered with "
                            "version %d of activation %x", writer, made, *answer)
        for writer, *answer in sorted(self.again):
            if tuple(answer) != self.answers.get(writer):
                self.report("wrong_answers", "write %d, asked again: version %d of activation %x "
                            "instead of %s", writer, *answer, self.answers.get(writer))

    def check_last_read(self):
        written = max((op.end for op in self.done if op.kind == WRITE), default=0)
        if written and not any(op.kind == READ and op.start > written for op in self.done):
            self.report("unread", "no read after the last write")

    def get_outage(self):
        """out: the longest time without an answer, and when it began."""
        ends = sorted(op.end for op in self.done)
        return max(((b - a, a) for a, b in zip(ends, ends[1:])), default=(0, 0))


def get_other(op):
    """out: a transaction's line as one of its other register."""
    other = {name: op[name] for name in ("o", "s", "e", "c", "u", "i") if name in op}
    other["k"] = op["b"]
    if op["c"] == 0:
        other.update(v=op["bv"], a=op["ba"], t=op["bt"])
    return other


class History:
    """The histories of all registers."""

    def __init__(self):
        self.registers = {}
        self.done = []   # lines of operations that succeeded or have an unknown outcome
        self.pairs = []  # the transactions among them
        self.operations = self.unknown = self.failed = 0
        self.keyed = collections.Counter()  # of operations with an idempotency key

    def add(self, op):
        self.operations += 1
        self.unknown += op["u"]
        self.failed += op["c"] != 0 and not op["u"]
        self.count_keyed(op)
        self.get_register(op["k"]).add(op)
        if "b" in op:
            self.get_register(op["b"]).add(get_other(op))
        if op["o"] != AGAIN and (op["c"] == 0 or op["u"] and op["o"] == WRITE):
            self.done.append(op)
            if "b" in op:
                self.pairs.append(op)

    def get_register(self, key):
        if key not in self.registers:
            self.registers[key] = Register(key)
        return self.registers[key]

    def count_keyed(self, op):
        """Those that were made again before an answer, and after one."""
        if op["o"] == WRITE and "n" in op:
            self.keyed.update(keyed=1, repeated=op["n"] > 1, unanswered=op["c"] != 0)
        self.keyed["asked_again"] += op["o"] == AGAIN

    def check(self):
        problems = [problem for _, register in sorted(self.registers.items())
                    for problem in register.check()]
        problems += self.find_torn()
        return problems or self.find_cycle()

    def find_torn(self):
        """A transaction of unknown outcome has written both registers, or none. Where a version is
        unseen, it may be that transaction's."""
        problems = []
        for op in self.pairs:
            ends = [op["k"], op["b"]]
            has = [op.get("i") in self.registers[key].versions for key in ends]
            if op["o"] == WRITE and has[0] != has[1]:
                key = ends[has[0]]
                facts = self.registers[key].facts
                if len(facts) == max(facts, default=0):
                    problems.append(Problem("torn", key, "transaction %d has written register %d "
                                            "only" % (op["i"], ends[not has[0]])))
        return problems

    def find_cycle(self):
        """Each problem of one register would be a cycle as well, so this is asked last."""
        facts = {key: {version: fact[0] for version, fact in register.facts.items()}
                 for key, register in self.registers.items()}
        cycle = serializable.find_cycle(self.done, facts)
        if not cycle:
            return []
        texts = ["%s of %s at %d" % ("write %d" % op["i"] if op["o"] == WRITE else "a read",
                                     " and ".join("register %d" % op[k] for k in "kb" if k in op),
                                     op["s"]) for op in cycle]
        return [Problem("not_serializable", cycle[0]["k"], "each of these precedes the next one, "
                        "and the last the first: " + "; ".join(texts))]

    def get_outage(self):
        """out: the longest outage of a register, when it began, the register."""
        return max(((*register.get_outage(), key) for key, register in self.registers.items()),
                   default=(0, 0, 0))
