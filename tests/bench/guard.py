# guard.py - instructions per operation of the hot paths, against those in guard.json.
# usage: guard.py BUILD [OPERATION] [--renew] [--baseline FILE] [--program FILE]
#   BUILD: the folder with the program `guard`; --renew writes the baseline instead.
# A JSON object a line. Fails when an operation takes over 5 % more instructions than the baseline
# says; those that receive from a silo, 20 or 25 %. Counts are callgrind's, of one thread, so they
# hardly vary. Where a build cannot be compared with the baseline (another compiler, C library or
# protobuf-c, by major.minor), or without valgrind, it says so loudly: exit status 0, under --strict
# 77; on another kind of machine, 0.
import argparse
import concurrent.futures
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

GROWTH_MAX = 0.05
# Where counts depend on how many responses a read brings.
GROWTH_MAX_OF = {"client-fan-out-nng": 0.2, "client-fan-out-reactor": 0.25}
TRIES = 3              # of an operation that grew; the least counts
RUNS_MAX = 10          # until one was not disturbed
DISTURBED = 75         # exit status: another thread took the worker's place
TIMEOUT_SECONDS = 300  # of one run; they take about a second
RENEW = "make bench BENCH=guard ARGS=--renew"
HERE = os.path.dirname(os.path.abspath(__file__))

# memcpy and its kin come in variants, chosen by the processor: all take the one that each has.
PLAIN = "glibc.cpu.hwcaps=" + ",".join("-" + name for name in (
    "AVX", "AVX2", "AVX512F", "AVX512VL", "AVX512BW", "BMI1", "BMI2", "ERMS", "FSRM", "LZCNT",
    "MOVBE", "RTM", "SSSE3", "SSE4_1", "SSE4_2"))


class Failed(Exception):
    pass


def say(text):
    print("guard: " + text, file=sys.stderr, flush=True)


def asked(program, what):
    return subprocess.run([program, what], check=True, capture_output=True, text=True).stdout


def about(program):
    """What counts depend on beside the sources."""
    return dict(json.loads(asked(program, "--about")), machine=platform.machine())


def operations(program):
    """{operation: n}, in the program's order."""
    return {name: int(n) for name, n in
            (line.split() for line in asked(program, "--operations").splitlines())}


def totals(folder):
    """{(part, thread): instructions} between marks: part 1 ends with the first."""
    found = {}
    for path in glob.glob(os.path.join(folder, "out.*-*")):
        part, thread = re.search(r"out\.(\d+)-(\d+)$", path).groups()
        with open(path) as file:
            count = re.search(r"^totals: (\d+)", file.read(), re.MULTILINE).group(1)
        found[int(part), int(thread)] = int(count)
    return found


def between_marks(found, operation):
    """Instructions of the third part less those of the second; None: on several threads."""
    if [part for part, _ in sorted(found)] != [1, 2, 3]:
        raise Failed("%s: callgrind saw other marks than three: %s" % (operation, sorted(found)))
    (_, first), (_, second), (_, third) = sorted(found)
    return found[3, third] - found[2, second] if first == second == third else None


def once(program, operation, n):
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "-q", "--tool=callgrind", "--separate-threads=yes",
                   "--dump-before=guard_mark", "--callgrind-out-file=" + folder + "/out",
                   program, operation, str(n)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                              stdin=subprocess.DEVNULL, env=dict(os.environ, GLIBC_TUNABLES=PLAIN))
        if done.returncode == DISTURBED:
            return None
        if done.returncode != 0:
            raise Failed("%s ends with %d: %s"
                         % (operation, done.returncode, done.stderr.strip()[-500:]))
        return between_marks(totals(folder), operation)


def counted(program, operation, n):
    """Instructions that one operation takes: what 2 n took more than n, by n."""
    for _ in range(RUNS_MAX):
        count = once(program, operation, n)
        if count is not None:
            return count / n
    raise Failed("%s: in %d runs never on one thread: the machine is too busy"
                 % (operation, RUNS_MAX))


def counted_all(program, chosen):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(lambda item: counted(program, *item), chosen.items())
        return dict(zip(chosen, counts))


def renew(path, program, chosen):
    counts = {}
    if os.path.exists(path):
        with open(path) as file:
            old = json.load(file)
        if not unlike(about(program), old["about"]):
            counts = old["instructions"]
    counts.update((name, round(count, 1)) for name, count in counted_all(program, chosen).items())
    counts = {name: counts[name] for name in operations(program) if name in counts}
    with open(path, "w") as file:
        json.dump({"about": about(program), "instructions": counts}, file, indent=2)
        file.write("\n")
    say("the baseline is renewed: " + path)


def growth(count, before):
    return count / before - 1


def compare(program, chosen, baseline):
    """Prints the figures. out: sentences about what grew too much."""
    wrong = []
    for name, count in counted_all(program, chosen).items():
        before = baseline.get(name)
        if before is None:
            wrong.append("%s: not in the baseline" % name)
            continue
        most = GROWTH_MAX_OF.get(name, GROWTH_MAX)
        for _ in range(TRIES - 1):
            if growth(count, before) > most:
                count = min(count, counted(program, name, chosen[name]))
        grown = growth(count, before)
        print(json.dumps({"name": "guard/" + name, "unit": "instructions/operation",
                          "value": round(count, 1), "baseline": before,
                          "growth_percent": round(grown * 100, 1)}), flush=True)
        if grown > most:
            wrong.append("%s: %.1f instructions an operation, %.1f before: %.1f %% more, "
                         "at most %.0f %%"
                         % (name, count, before, grown * 100, most * 100))
        elif grown < -most:
            say("%s: %.1f %% less than the baseline, which may be renewed: %s"
                % (name, -grown * 100, RENEW))
    return wrong


def series(version):
    """Of a version what counts depend on, major.minor with what is before it: a distribution's
    update of the rest must not turn the guard off."""
    return re.sub(r"^(\D*\d+\.\d+).*", r"\1", str(version), flags=re.DOTALL)


def unlike(mine, its):
    return ", ".join("%s %s, here %s" % (key, its.get(key), mine.get(key))
                     for key in sorted(set(mine) | set(its))
                     if series(mine.get(key)) != series(its.get(key)))


def skipped(args, why):
    """Exit status."""
    say("%s: NOTHING IS GUARDED: %s" % ("FAILED" if args.strict else "skipped", why))
    return 77 if args.strict else 0


def chosen_of(program, pattern):
    every = operations(program)
    chosen = {name: n for name, n in every.items() if not pattern or name == pattern}
    if not chosen:
        raise Failed("no operation %s; there are: %s" % (pattern, " ".join(every)))
    return chosen


def checked(args, program):
    """Exit status."""
    chosen = chosen_of(program, args.operation)
    if not shutil.which("valgrind"):
        return skipped(args, "valgrind is not installed")
    if args.renew:
        renew(args.baseline, program, chosen)
        return 0
    with open(args.baseline) as file:
        baseline = json.load(file)
    mine = about(program)
    if mine["machine"] != baseline["about"]["machine"]:
        say("skipped: NOTHING IS GUARDED: the baseline is of a %s, this is a %s"
            % (baseline["about"]["machine"], mine["machine"]))
        return 0
    differs = unlike(mine, baseline["about"])
    if differs:
        return skipped(args, "counts of this build cannot be compared with the baseline's: "
                       + differs)
    wrong = compare(program, chosen, baseline["instructions"])
    for sentence in wrong:
        say("FAILED: " + sentence)
    if wrong:
        say("if that is meant: %s, and commit %s" % (RENEW, os.path.relpath(args.baseline)))
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("operation", nargs="?", default="")
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--baseline", default=os.path.join(HERE, "guard.json"))
    parser.add_argument("--program")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--quick", action="store_true", help="nothing: it is quick")
    args = parser.parse_args()
    try:
        return checked(args, args.program or os.path.join(args.build, "guard"))
    except (Failed, subprocess.SubprocessError, OSError) as failure:
        say("FAILED: %s" % failure)
        return 1


if __name__ == "__main__":
    sys.exit(main())
