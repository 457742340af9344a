# hostile.py - what hostile connections cost a silo's other callers: prints a JSON object for each
# transport, port and rate.
# usage: hostile.py BUILD [nng|reactor] [--quick] [--rounds=N]
#   BUILD: the folder with the program `hostile`, whose first comment says what it measures.
# Lists of three are quartiles over rounds. silo_to_decoy: the time of calls during an attack on the
# silo, divided by that during the same attack on a decoy. silo_us, decoy_us, attackers_us: how much
# processor time a hostile connection takes. p99_of_time: see latencies.h.
import json
import os
import subprocess
import sys

TRANSPORTS = ("nng", "reactor")
RATES = (200, 1000, 3000, 0)
RUNS = [(door, rate) for door in ("own", "silos", "gateway") for rate in RATES] + [("decoy", 1000)]
RUNS_QUICK = [(door, rate) for door, rate in RUNS if rate == 1000]
TIMEOUT_SECONDS = 1200


def main(build, *args):
    quick = "--quick" in args
    rounds = ([a.split("=")[1] for a in args if a.startswith("--rounds=")] + ["15"])[0]
    wanted = [a for a in args if a and not a.startswith("--")]
    for transport in wanted or TRANSPORTS:
        for door, rate in RUNS_QUICK if quick else RUNS:
            done = subprocess.run(
                [os.path.join(build, "hostile"), transport, door, str(rate),
                 "2" if quick else rounds, "100" if quick else "500"],
                stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
            if done.returncode:
                sys.exit("hostile: %s, %s, %d/s ends with %d" % (transport, door, rate,
                                                                 done.returncode))
            print(json.dumps({"name": "hostile", "parameters": {
                "transport": transport, "port": door, "connections_per_s": rate},
                **json.loads(done.stdout)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
