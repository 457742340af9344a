# recovery.py - what kill -9 of a silo, and of all silos, costs callers: prints a JSON object for
# each length of the lease.
# usage: recovery.py BUILD [--quick]
#   BUILD: the folder with the program `recovery`; recovery.c says what the figures are
import json
import os
import subprocess
import sys

LEASES_MS = (10000, 2000)
GRAINS = 600
TIMEOUT_SECONDS = 180


def main(build, *args):
    quick = "--quick" in args
    for lease_ms in (500,) if quick else LEASES_MS:
        for run in range(1 if quick else 3):
            done = subprocess.run([os.path.join(build, "recovery"), str(lease_ms), str(GRAINS)],
                                  stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
            if done.returncode:
                sys.exit("recovery: with a lease of %d ms: ends with %d" % (lease_ms,
                                                                           done.returncode))
            print(json.dumps({"name": "recovery", "parameters": {
                "silos": 3, "grains": GRAINS, "lease_ms": lease_ms, "run": run + 1},
                **json.loads(done.stdout)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
