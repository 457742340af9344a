# ladder.py - builds a copy of the tree and runs the tests that should catch a mutant, those nearest
# to its source first, until one fails. A test whose programs have the same bytes with the mutant as
# without it is not run: it would pass.
import collections
import concurrent.futures
import filecmp
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import mirror
import source

SECONDS_MIN, TIMES = 15, 8  # a test's limit: so many seconds, or so many times what it took
TIMES_AGAIN = 3             # of that limit, once more: the machine may have been busy
SUITES = (":unit", ":conformance")
BESIDE_UNIT = ("explore", "sim")
TESTS_PER_JOB = 2           # at a time: tests wait for half of their time

Test = collections.namedtuple("Test", "name command env targets alone")


def copy_tree(root, to):
    """Only the files that differ, so that a build directory in the copy stays of use."""
    for where, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in source.SKIP and not source.is_build(where, f)]
        folder = os.path.join(to, os.path.relpath(where, root))
        os.makedirs(folder, exist_ok=True)
        for name in set(names) - source.SKIP:
            old, new = os.path.join(where, name), os.path.join(folder, name)
            if not os.path.exists(new) or not filecmp.cmp(old, new, shallow=False):
                shutil.copy(old, new)


class Ladder:
    def __init__(self, root, scratch, jobs):
        self.scratch, self.jobs = scratch, jobs
        self.build = os.path.join(scratch, "build")
        self.seconds, self.programs = {}, {}  # of each test, without a mutant
        copy_tree(root, scratch)
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            # a mutant is linked into all tests: gold needs a fraction of the default linker's time
            self.must("meson", "setup", self.build, scratch, "-Dwerror=false",
                      "-Dc_link_args=-fuse-ld=gold", "--native-file",
                      os.path.join(scratch, "tests/presets/release.ini"))
        self.must("ninja", "-C", self.build, "build.ninja")
        self.tests = {test.name: test for test in self.read_tests()}
        self.behaviours = mirror.rows(scratch)

    def must(self, *command):
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            raise SystemExit(done.stdout.decode(errors="replace")[-4000:] +
                             "mutants: %s failed" % command[0])

    def info(self, name):
        with open(os.path.join(self.build, "meson-info", name), encoding="utf-8") as file:
            return json.load(file)

    def read_tests(self):
        files = {target["id"]: [os.path.relpath(name, self.build) for name in target["filename"]]
                 for target in self.info("intro-targets.json")}
        for test in self.info("intro-tests.json"):
            if test["suite"][0].endswith(SUITES) or test["name"] in BESIDE_UNIT:
                targets = [name for target in test["depends"] for name in files[target]]
                if targets:
                    yield Test(test["name"], test["cmd"], test["env"], targets,
                               not test["is_parallel"])

    # ---- which tests ----

    def nearest(self, path):
        """The test of this source, and those that behaviours.txt names for it."""
        folder, name = mirror.folder_of(path), os.path.splitext(os.path.basename(path))[0]
        names = [folder + "/" + name]
        for test, (_, sources) in sorted(self.behaviours.items()):
            if folder + "/" + name in sources:
                names.append(mirror.TEST.match(test).expand(r"\1/\2"))
        return [name for name in names if name in self.tests]

    def rungs(self, path, quick):
        """Lists of tests in growing cost. Quick: those of the folder only."""
        folder = mirror.folder_of(path) + "/"
        ladder = [self.nearest(path),
                  sorted(name for name in self.tests if name.startswith(folder))]
        if not quick:
            ladder.append(sorted(self.tests))
        seen = set()
        for names in ladder:
            new = [self.tests[name] for name in names if name not in seen]
            seen.update(names)
            if new:
                yield new

    # ---- build and run ----

    def ninja(self, tests):
        """out: what ninja said when the build failed, else None."""
        targets = sorted({target for test in tests for target in test.targets})
        done = subprocess.run(["ninja", "-C", self.build, "-j%d" % self.jobs] + targets,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.decode(errors="replace") if done.returncode else None

    def digest(self, test):
        digest = hashlib.sha256()
        for name in test.targets:
            with open(os.path.join(self.build, name), "rb") as file:
                digest.update(file.read())
        return digest.digest()

    def output(self, test):
        return os.path.join(self.build, "mutant-%s.log" % test.name.replace("/", "-"))

    def limit(self, test):
        return max(SECONDS_MIN, TIMES * self.seconds.get(test.name, 0))

    def run(self, test, seconds, stop):
        """out: why the test failed; None: it passed, or was stopped."""
        with open(self.output(test), "wb") as output:
            env = {**os.environ, **test.env, "TEFF_FAULTS": "all"}  # the simulator shrinks none
            child = subprocess.Popen(test.command, env=env, cwd=self.build,
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                     start_new_session=True)
        begin = time.monotonic()
        try:
            while child.poll() is None:
                if stop.is_set():
                    return None
                if time.monotonic() - begin > seconds:
                    return "ran longer than %d s" % seconds
                time.sleep(0.01)
            return "status %d" % child.returncode if child.returncode else None
        finally:
            end_session(child)

    def run_patiently(self, test, seconds, stop):
        """As run; a test that runs too long is run again, for longer."""
        why = self.run(test, seconds, stop)
        late = why and why.startswith("ran longer")
        return self.run(test, TIMES_AGAIN * seconds, stop) if late else why

    def first_failure(self, tests, limit):
        """Run tests until one fails. out: its name and why, None: all pass."""
        stop, failures = threading.Event(), []

        def run(test):
            if stop.is_set():
                return
            begin = time.monotonic()
            why = self.run_patiently(test, limit(test), stop)
            self.seconds.setdefault(test.name, time.monotonic() - begin)
            if why:
                failures.append((test.name, why))
                stop.set()

        shortest_first = sorted(tests, key=lambda test: self.seconds.get(test.name, 0))
        with concurrent.futures.ThreadPoolExecutor(TESTS_PER_JOB * self.jobs) as pool:
            list(pool.map(run, [test for test in shortest_first if not test.alone]))
        for test in shortest_first:
            if test.alone:
                run(test)
        return failures[0] if failures else None

    def check(self, tests):
        """All pass without a mutant; how long each takes sets its limit."""
        said = self.ninja(tests)
        if said:
            raise SystemExit(said[-4000:] + "mutants: the tree does not build")
        failure = self.first_failure(tests, lambda test: 300)
        if failure:
            with open(self.output(self.tests[failure[0]]), errors="replace") as file:
                print(file.read()[-4000:])
            raise SystemExit("mutants: %s fails without a mutant: %s" % failure)
        self.programs = {test.name: self.digest(test) for test in tests}

    def climb(self, path, quick):
        """The tree has a mutant in path.
        out: (False: it does not compile or changes no program, the test that caught it and how)."""
        changes = False
        for tests in self.rungs(path, quick):
            if self.ninja(tests):
                return False, None
            changed = [t for t in tests if self.digest(t) != self.programs.get(t.name)]
            changes = changes or bool(changed)
            caught = self.first_failure(changed, self.limit)
            if caught:
                return True, caught
        return changes or quick, None


def end_session(child):
    """A test that hangs, and what it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
