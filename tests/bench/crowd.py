# crowd.py - a silo with thousands of clients: prints a JSON object for each transport and number.
# usage: crowd.py BUILD [nng|reactor] [--quick]
#   BUILD: the folder with the program `crowd`
# bytes_per_client: of the silo's resident memory, for each idle client. The others are calls, one
# after the other, of one client: alone, beside the crowd, and beside one that floods the silo with
# one-way messages to 64 grains; flood_bytes: how much larger the silo has become by then.
import json
import os
import subprocess
import sys

TRANSPORTS = ("nng", "reactor")
CLIENTS = (100, 1000, 9990)
TIMEOUT_SECONDS = 120


def main(build, *args):
    quick = "--quick" in args
    wanted = [a for a in args if a and a != "--quick"]
    for transport in wanted or TRANSPORTS:
        for clients in (10,) if quick else CLIENTS:
            done = subprocess.run([os.path.join(build, "crowd"), transport, str(clients),
                                   "100" if quick else "3000"], stdout=subprocess.PIPE, text=True,
                                  timeout=TIMEOUT_SECONDS)
            if done.returncode:
                sys.exit("crowd: %s with %d clients ends with %d" % (transport, clients,
                                                                    done.returncode))
            found = json.loads(done.stdout)
            print(json.dumps({"name": "crowd", "parameters": {
                "transport": transport, "clients": found.pop("clients")}, **found}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
