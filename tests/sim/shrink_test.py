# shrink_test.py SIM - a seed with a planted bug prints the faults that the bug needs: the run fails
# with these faults, and does not fail if one of them is left out.
import os
import re
import subprocess
import sys

SEEDS = 600
LINE = re.compile(r"^ +([\d.]+) s  (.*)$|^ +in this run: (.*)$", re.MULTILINE)
COUNTS = re.compile(r"^it needs (\d+) of its (\d+) faults", re.MULTILINE)
AGAIN = re.compile(r"^with these faults: TEFF_SEED=(\d+) TEFF_FAULTS=(\S+) ", re.MULTILINE)
FOUND = re.compile(r"found by seed (\d+): (.*)$", re.MULTILINE)

# planted bug: the first seed, how many seeds that find it, the faults that it needs, how many
# others it may need
PLANTED = {
    "paired": (50, 2, [r"cut of connection \d+ between .* and .*", r"silo\d crashes"], 0),
    # no two activations may meet if the store is fast, or if only one silo is cut off from it;
    # earlier seeds find the bug by calls that nobody ends, which need one fault more
    "endless": (6, 1, [r"silo\d does not reach the store for .* s"], 1),
}


def run(sim, *args, **env):
    """out: the status, and what was printed."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TEFF_")}
    done = subprocess.run([sim, *args], env={**inherited, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def find_seeds(sim, plant, first, count):
    for _ in range(count):
        status, said = run(sim, "--planted", plant, "--first", str(first), "--seeds", str(SEEDS))
        if status:
            sys.exit("%s: not found: %s" % (plant, said))
        seed = int(FOUND.search(said).group(1))
        yield seed
        first = seed + 1


def fails_with(sim, plant, seed, faults):
    status, _ = run(sim, "--planted", plant, TEFF_SEED=str(seed), TEFF_FAULTS=faults)
    return status == 0


def check_seed(sim, plant, seed, expected, others_max):
    """out: what is wrong."""
    _, said = run(sim, "--planted", plant, "--seed", str(seed))
    counts, again = COUNTS.search(said), AGAIN.search(said)
    if not counts or not again:
        yield "no list of faults"
        return
    listed = [match.group(2) or match.group(3) for match in LINE.finditer(said)]
    numbers = again.group(2).split(",")
    if int(counts.group(1)) != len(listed) or len(numbers) != len(listed):
        yield "%s faults, %d lines, %d numbers" % (counts.group(1), len(listed), len(numbers))
    needed = [sum(1 for line in listed if re.fullmatch(text, line)) for text in expected]
    if 0 in needed or len(listed) > len(expected) + others_max:
        yield "not the faults that the bug needs"
    if int(again.group(1)) != seed or not fails_with(sim, plant, seed, again.group(2)):
        yield "the printed command does not fail"
    for one in numbers:
        others = ",".join(number for number in numbers if number != one) or "none"
        if fails_with(sim, plant, seed, others):
            yield "fault %s is not needed" % one
    if run(sim, "--planted", plant, "--seed", str(seed))[1] != said:
        yield "another output in another run"
    print("%s: seed %d: %s: %s" % (plant, seed, counts.group(0), "; ".join(listed)))


def main():
    sim, wrong, had_many = sys.argv[1], 0, False
    for plant, (first, count, expected, others_max) in PLANTED.items():
        for seed in find_seeds(sim, plant, first, count):
            for why in check_seed(sim, plant, seed, expected, others_max):
                print("%s: seed %d: %s" % (plant, seed, why))
                wrong += 1
            _, said = run(sim, "--planted", plant, "--trace", TEFF_SEED=str(seed))
            had_many |= len(LINE.findall(said)) > 10
    if not had_many:
        print("no seed had more than 10 faults")
    return 1 if wrong or not had_many else 0


sys.exit(main())
