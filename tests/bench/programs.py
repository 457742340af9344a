# programs.py - what sched.py and peers.py share: other systems are built, programs run and read.
# A program takes ROW WORKERS N, runs the row, and prints one line: RESULT ops=N seconds=S ...
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

RUN_SECONDS = 0.3  # n is raised until a run takes about as long
HERE = os.path.dirname(os.path.abspath(__file__))


def installed(folder, names):
    """(name, command) of those that build.sh has made in folder; it says which it has not."""
    subprocess.run([os.path.join(HERE, "peers", "build.sh"), folder] + list(names), check=True)
    return [(n, [os.path.join(folder, n)]) for n in names
            if os.path.exists(os.path.join(folder, n))]


def said(text, command, row, workers):
    print("bench: %s, %s with %d workers: %s" % (os.path.basename(command[0]), row, workers, text),
          file=sys.stderr, flush=True)


def result_of(text):
    """What a RESULT line says, as numbers; None: there is none."""
    for line in text.splitlines():
        if line.startswith("RESULT "):
            return {k: float(v) for k, v in re.findall(r"(\w+)=(\S+)", line)}
    return None


def started(command, row, workers, n, stdin, stderr):
    return subprocess.Popen([command[0], row, str(workers), str(n)] + command[1:], stdin=stdin,
                            stdout=subprocess.PIPE, stderr=stderr, text=True,
                            start_new_session=True)


def killed(program):
    """Kills the program and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


def run(command, row, workers, n, timeout):
    """What the program's RESULT line says, as numbers; None: it did not end or failed."""
    program = started(command, row, workers, n, subprocess.DEVNULL, subprocess.PIPE)
    try:
        out, err = program.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        killed(program)
        program.communicate()
        said("stands still: not done after %d s" % timeout, command, row, workers)
        return None
    result = result_of(out)
    if result is None:
        said("failed (%d): %s" % (program.returncode, err.strip()[-200:]), command, row, workers)
    return result


class Staying:
    """A program that warms up once, and then runs once for each line that it is given."""

    def __init__(self, command, row, workers, n):
        self.what = (command, row, workers)
        self.err = tempfile.TemporaryFile(mode="w+")
        self.program = started(command + ["stay"], row, workers, n, subprocess.PIPE, self.err)

    def run(self, n, timeout):
        """As the function run; after None it has ended."""
        if self.program.poll() is not None:
            return self.failed()
        deadline = time.monotonic() + timeout
        killer = threading.Timer(timeout, killed, (self.program,))
        killer.start()
        with contextlib.suppress(BrokenPipeError):
            self.program.stdin.write("%d\n" % n)
            self.program.stdin.flush()
        result = result_of(self.program.stdout.readline())
        killer.cancel()
        if result is None and time.monotonic() < deadline:
            return self.failed()
        if result is None:
            said("stands still: not done after %d s" % timeout, *self.what)
        return result

    def failed(self):
        self.end()
        self.err.seek(0)
        said("failed (%d): %s" % (self.program.returncode, self.err.read().strip()[-200:]),
             *self.what)

    def end(self):
        killed(self.program)
        with contextlib.suppress(BrokenPipeError):
            self.program.communicate()


def fitting(run_n, n, n_max):
    """How many make a run of about RUN_SECONDS. in: run_n: of n, what run says."""
    while n < n_max:
        result = run_n(n)
        if result is None or result["seconds"] > RUN_SECONDS / 2:
            break
        n = min(n_max, int(n * min(16, max(2, RUN_SECONDS / result["seconds"]))))
    return n


def fitting_n(command, row, workers, n, n_max, timeout):
    """As fitting, for a program; the warm-up is not counted."""
    return fitting(lambda each: run(command, row, workers, each, timeout), n, n_max)


def rounded(value):
    return None if value is None else float("%.4g" % value)
