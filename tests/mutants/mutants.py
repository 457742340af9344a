# mutants.py [--seed S] [--count N] [--quick] [--jobs J] [--scratch DIR] - does a test fail when the
# code is wrong? Plants one mutant after the other in a copy of the tree: those of named.py, then N
# drawn over the sources of runtime and grains (kinds.py), and runs tests until one fails.
#
# Quick: drawn ones only, and only the tests of their own folders. Ends with 1 when a named one
# survives, or more of the drawn ones than AT_LEAST allows. Prints its seed; a seed draws the same.
#
# mutants.py --simulator [--seed S] [--count N] [--only TEXT] - instead: the bugs of simulated.py,
# or those with TEXT in their names; the simulator runs N seeds at most from S on (simulator.py).
import argparse
import contextlib
import os
import random
import resource
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "lint"))
import source

import kinds
import ladder
import named
import simulated
import simulator

# Percent. The tests of a source's own folder find about half (42 of 79); others find more, but the
# quick form does not run them. So it fails only when far fewer are caught.
AT_LEAST, AT_LEAST_QUICK = 95, 25
COUNT, COUNT_QUICK = 66, 20


def named_mutants(root, table):
    """in: table, named.NAMED or simulated.SIMULATED."""
    for name, (path, old, new) in table.items():
        text = source.read(root, path)
        if text.count(old) != 1:
            raise SystemExit("mutants: %s: %s does not have once: %s" % (name, path, old))
        begin = text.index(old)
        yield kinds.Mutant(path, source.line_of(text, begin), name, begin, begin + len(old), old,
                           new)


def drawn_mutants(root, chance):
    """A folder, then a kind, then a place of it, each as likely as any other."""
    found = {}
    for path in source.files(root, ".c", ".h"):
        if path.startswith(("runtime/", "grains/")):
            for kind, mutants in kinds.places(path, source.read(root, path)).items():
                found.setdefault(os.path.dirname(path), {}).setdefault(kind, []).extend(mutants)
    while found:
        folder = chance.choice(sorted(found))
        of_folder = {kind: mutants for kind, mutants in found[folder].items() if mutants}
        if not of_folder:
            del found[folder]
            continue
        of_kind = of_folder[chance.choice(sorted(of_folder))]
        yield of_kind.pop(chance.randrange(len(of_kind)))


def read_equivalent():
    """{(source, line before, line after): why}"""
    with open(os.path.join(HERE, "equivalent.txt"), encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("#")]
    blocks = "\n".join(lines).strip().split("\n\n")
    rows = [block.split("\n") for block in blocks if block]
    return {(row[0], row[1][2:], row[2][2:]): " ".join(row[3:]) for row in rows}


class Run:
    def __init__(self, steps, quick):
        self.steps, self.quick = steps, quick
        self.survivors, self.caught = [], 0

    def plant(self, mutant):
        """out: False: the mutant does not compile, or it changes no program."""
        begin = time.monotonic()
        with planted_in(self.steps.scratch, mutant) as text:
            built, caught = self.steps.climb(mutant.path, self.quick)
        if built:
            self.report(mutant, text, caught, time.monotonic() - begin)
        return built

    def report(self, mutant, text, caught, seconds):
        before, after = kinds.lines_of(text, mutant)
        print("%s:%d: %s\n    - %s\n    + %s"
              % (mutant.path, mutant.line, mutant.kind, before, after))
        if caught:
            self.caught += 1
            print("    caught by %s: %s; %d s" % (*caught, seconds), flush=True)
        else:
            self.survivors.append(mutant)
            print("    SURVIVED; %d s" % seconds, flush=True)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def planted_in(scratch, mutant):
    """The tree has the mutant. as: the source without it."""
    path, text = os.path.join(scratch, mutant.path), source.read(scratch, mutant.path)
    write(path, kinds.planted(text, mutant))
    try:
        yield text
    finally:
        write(path, text)


def draw(run, count, chance):
    """out: how many were drawn besides, and not planted, because equivalent.txt explains them."""
    equivalent, scratch = read_equivalent(), run.steps.scratch
    done = explained = 0
    for mutant in drawn_mutants(scratch, chance):
        if done == count:
            break
        lines = kinds.lines_of(source.read(scratch, mutant.path), mutant)
        if (mutant.path, *lines) in equivalent:
            explained += 1
            continue
        done += run.plant(mutant)
    return explained


def check_tree(steps, quick, seed, count):
    """The tests that the mutants need pass as the tree is. Quick: those of what will be drawn."""
    wanted = steps.tests.values()
    if quick:
        drawn = drawn_mutants(steps.scratch, random.Random(seed))
        paths = {next(drawn).path for _ in range(2 * count)}
        wanted = {test.name: test for path in paths for rung in steps.rungs(path, True)
                  for test in rung}.values()
    steps.check(sorted(wanted))


def options():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--scratch")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--simulator", action="store_true")
    parser.add_argument("--only", default="")
    return parser.parse_args()


def run_all(opt, scratch):
    count = opt.count or (COUNT_QUICK if opt.quick else COUNT)
    print("mutants: again: --seed %d --count %d%s" % (opt.seed, count, " --quick" * opt.quick),
          flush=True)
    steps = ladder.Ladder(ROOT, scratch, opt.jobs)
    check_tree(steps, opt.quick, opt.seed, count)
    table = Run(steps, opt.quick)
    for mutant in [] if opt.quick else named_mutants(scratch, named.NAMED):
        if not table.plant(mutant):
            raise SystemExit("mutants: named.py: %s does not compile or changes nothing" %
                             mutant.kind)
    drawn = Run(steps, opt.quick)
    explained = draw(drawn, count, random.Random(opt.seed))
    return tell(table, drawn, explained, AT_LEAST_QUICK if opt.quick else AT_LEAST)


def run_simulator(opt, scratch):
    print("mutants: again: --simulator --seed %d" % opt.seed, flush=True)
    steps = ladder.Ladder(ROOT, scratch, opt.jobs)
    mutants = [mutant for mutant in named_mutants(scratch, simulated.SIMULATED)
               if opt.only in mutant.kind]
    return simulator.run(steps, mutants, lambda mutant: planted_in(scratch, mutant), opt.seed,
                         opt.count or simulator.SEEDS)


def tell(table, drawn, explained, at_least):
    print("\nsurvived:" if table.survivors + drawn.survivors else "")
    for mutant in table.survivors + drawn.survivors:
        print("    %s:%d: %s" % (mutant.path, mutant.line, mutant.kind))
    count = drawn.caught + len(drawn.survivors)
    percent = 100 * drawn.caught // count if count else 100
    print("mutants: named: %d caught, %d survived; drawn: %d caught, %d survived: %d %%, at least "
          "%d wanted; %d not counted, see equivalent.txt"
          % (table.caught, len(table.survivors), drawn.caught, len(drawn.survivors), percent,
             at_least, explained))
    return 1 if table.survivors or percent < at_least else 0


def main():
    opt = options()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    scratch = opt.scratch or tempfile.mkdtemp(prefix="teff-mutants-")
    try:
        return run_simulator(opt, scratch) if opt.simulator else run_all(opt, scratch)
    finally:
        if not opt.scratch:
            shutil.rmtree(scratch)


if __name__ == "__main__":
    sys.exit(main())
