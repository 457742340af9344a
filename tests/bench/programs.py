# programs.py - what sched.py and peers.py share: other systems are built, programs run and read.
# A program takes ROW WORKERS N, runs the row, and prints one line: RESULT ops=N seconds=S ...
import os
import re
import signal
import subprocess
import sys

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


def run(command, row, workers, n, timeout):
    """What the program's RESULT line says, as numbers; None: it did not end or failed."""
    program = subprocess.Popen([command[0], row, str(workers), str(n)] + command[1:],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = program.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)  # and what it has started
        program.communicate()
        said("stands still: not done after %d s" % timeout, command, row, workers)
        return None
    for line in out.splitlines():
        if line.startswith("RESULT "):
            return {k: float(v) for k, v in re.findall(r"(\w+)=(\S+)", line)}
    said("failed (%d): %s" % (program.returncode, err.strip()[-200:]), command, row, workers)
    return None


def fitting_n(command, row, workers, n, n_max, timeout):
    """How many make a run of about RUN_SECONDS, the warm-up not counted."""
    while n < n_max:
        result = run(command, row, workers, n, timeout)
        if result is None or result["seconds"] > RUN_SECONDS / 2:
            break
        n = min(n_max, int(n * min(16, max(2, RUN_SECONDS / result["seconds"]))))
    return n


def rounded(value):
    return None if value is None else float("%.4g" % value)
