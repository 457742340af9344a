# path.py PROGRAM [list] - the files that a call passes, and how often it goes back into one. Fails
# over the limits below.
#
# PROGRAM (path.c) prints each function that a call enters and leaves. A call from one file into
# another is a step. The first step into a file enters it; a step into a file that is still running
# further down the same stack (A calls B calls A) is a return. base, memory and os are tools and
# not on the way. NAME.h counts as NAME.c.
#
# A count by function is higher: it also counts the helpers of a file that a call comes back to, one
# by one. By it the first design had 27 returns within teff_ask and 40 within the router; by this
# one it had 19 on the whole way.
import os
import subprocess
import sys

# mode: returns. No more than this; lower them when the code passes with less.
LIMITS = {"inside": 1, "queued": 1, "remote": 8}
# Heartbeats, and threads that wake up late, add steps to a call but take none away, so the shortest
# call is the one to count. On a busy machine all 150 calls of a run may meet one (4 of 24 runs).
RUNS_MAX = 10
TOOLS = ("runtime/base/", "runtime/memory/", "runtime/os/")


def read_calls(text):
    """out: for each call a list of (thread, enters, function's address)."""
    calls = []
    for line in text.splitlines():
        if line == "call":
            calls.append([])
        else:
            thread, what, function = line.split()
            calls[-1].append((thread, what == "enter", function))
    return calls


def find_modules(program, addresses):
    """out: for each address its (file without its ending, function), "" outside of the product."""
    addresses = sorted(addresses)
    done = subprocess.run(["addr2line", "-f", "-e", program], input="\n".join(addresses),
                          stdout=subprocess.PIPE, check=True, text=True)
    lines = done.stdout.splitlines()
    modules = {}
    for i, address in enumerate(addresses):
        path = os.path.normpath(lines[2 * i + 1].rsplit(":", 1)[0])
        at = max(path.rfind("/runtime/"), path.rfind("/grains/"))
        path = "" if at < 0 or "/tests/" in path[at:] else os.path.splitext(path[at + 1:])[0]
        modules[address] = (path, lines[2 * i])
    return modules


def walk(call, modules):
    """out: the steps of a call, a (file, function, depth, is it a return) each.
    A fiber's frames lie on top of those of the thread that resumed it, and go with them."""
    steps, stacks, seen = [], {}, set()
    for thread, enters, function in call:
        stack = stacks.setdefault(thread, [])
        if not enters:
            if function in stack:
                del stack[len(stack) - 1 - stack[::-1].index(function):]
            continue
        path, name = modules[function]
        files = [modules[outer][0] for outer in stack]
        stack.append(function)
        if not path or path.startswith(TOOLS) or (files and files[-1] == path):
            continue
        again = path in files
        if again or path not in seen:
            steps.append((path, name, len(stack), again))
        seen.add(path)
    return steps


def count_returns(steps):
    return sum(again for _, _, _, again in steps)


def find_way(program, mode):
    """out: the steps of one call of a run: of those with the fewest returns, the shortest."""
    done = subprocess.run([program, mode], stdout=subprocess.PIPE, check=True, text=True)
    calls = read_calls(done.stdout)
    modules = find_modules(program, {function for call in calls for _, _, function in call})
    return min((walk(call, modules) for call in calls),
               key=lambda steps: (count_returns(steps), len(steps)))


def main(program, list_all):
    failed = False
    for mode, returns_max in LIMITS.items():
        for _ in range(RUNS_MAX):
            steps = find_way(program, mode)
            if count_returns(steps) <= returns_max:
                break
        returns = count_returns(steps)
        print("path: %s: %d files, %d returns" % (mode, len(steps) - returns, returns))
        if list_all:
            for path, name, depth, again in steps:
                print("  %s%s %s: %s" % (" " * depth, "<-" if again else "->", path, name))
        if returns > returns_max:
            print("path: %s: at most %d returns" % (mode, returns_max))
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1], len(sys.argv) > 2)
