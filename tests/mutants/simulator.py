# simulator.py - does the simulator find each bug of simulated.py? Part of mutants.py: plants one
# after the other, builds the simulator only, and runs seeds until one fails.
#
# Found: a seed fails with the bug, by a check, a crash or a hang, and does not fail without it.
import re
import shutil
import threading

SEEDS, AT_ONCE = 5000, 20  # for each bug; in one process
SECONDS = 40               # for AT_ONCE seeds, which take about one; more is a hang
MISSED_MAX = 2
FAILED = re.compile(r"^seed (\d+) failed: (.*)$", re.MULTILINE)


class Simulator:
    def __init__(self, steps, first, seeds):
        self.steps, self.first, self.seeds = steps, first, seeds
        self.sim = steps.tests["sim"]
        self.program = self.sim.command[0]
        self.clean = self.program + "-clean"
        self.build()
        shutil.copy(self.program, self.clean)

    def build(self):
        said = self.steps.ninja([self.sim])
        if said:
            raise SystemExit(said[-4000:] + "mutants: the simulator does not build")

    def runs(self, program, first, seeds, at_once):
        return [self.sim._replace(name="sim-%d" % at, alone=False, env={},
                                  command=[program, "--first", str(at), "--seeds", str(at_once)])
                for at in range(first, first + seeds, at_once)]

    def said(self, run):
        with open(self.steps.output(run), encoding="utf-8", errors="replace") as file:
            return file.read()

    def which_seed(self, first):
        """out: the seed of a run that failed, and what it said; of a crash, the last line. in: the
        first seed of a process that failed."""
        for run in self.runs(self.program, first, AT_ONCE, 1):
            why = self.steps.run_patiently(run, SECONDS, threading.Event())
            if why:
                found = FAILED.search(self.said(run))
                lines = self.said(run).strip().splitlines() or [""]
                return int(run.name[4:]), found.group(2) if found else why + ": " + lines[-1]
        raise SystemExit("mutants: a seed from %d on fails only behind others" % first)

    def find(self):
        """out: the seed that finds the bug that is planted now, and why; None: none does."""
        self.build()
        self.steps.seconds.clear()  # so that the runs keep their order
        failure = self.steps.first_failure(self.runs(self.program, self.first, self.seeds, AT_ONCE),
                                           lambda run: SECONDS)
        if not failure:
            return None
        seed, why = self.which_seed(int(failure[0][4:]))
        if self.steps.run_patiently(self.runs(self.clean, seed, 1, 1)[0], SECONDS,
                                    threading.Event()):
            raise SystemExit("mutants: seed %d fails without a bug" % seed)
        return seed, why


def run(steps, mutants, plant, first, seeds):
    """in: plant(mutant), a context in which the tree has it. out: the status to exit with."""
    simulator = Simulator(steps, first, seeds)
    missed, most = [], 0
    for mutant in mutants:
        print("%s:%d: %s" % (mutant.path, mutant.line, mutant.kind), flush=True)
        with plant(mutant):
            found = simulator.find()
        if found:
            most = max(most, found[0] - first + 1)
            print("    seed %d, number %d: %s" % (found[0], found[0] - first + 1, found[1]),
                  flush=True)
        else:
            missed.append(mutant.kind)
            print("    NOT FOUND by %d seeds" % seeds, flush=True)
    print("\n".join([""] + ["not found: " + name for name in missed]))
    print("mutants: the simulator found %d of %d bugs, each within %d seeds; at most %d may be "
          "missed" % (len(mutants) - len(missed), len(mutants), most, MISSED_MAX))
    return 1 if len(missed) > MISSED_MAX else 0
