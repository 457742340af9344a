# scale.py - what a change of the cluster costs as it grows, by the simulator's clock and network.
# usage: scale.py BUILD [--quick]
#   BUILD: the folder with the program `bench`; tests/sim/scale.c prints the lines.
import os
import subprocess
import sys

SIZES = ((3, 10000), (10, 10000), (10, 100000), (100, 10000), (100, 100000), (300, 100000))
QUICK = ((10, 1000),)


def main(build, *args):
    for size in QUICK if "--quick" in args else SIZES:
        program = os.path.join(build, os.pardir, "sim", "scale")
        done = subprocess.run([program, *map(str, size)], check=False)
        if done.returncode:
            sys.exit("scale: %d silos, %d grains: ends with %d" % (*size, done.returncode))


if __name__ == "__main__":
    main(*sys.argv[1:])
