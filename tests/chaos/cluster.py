# cluster.py - the silos and clients of a run, each a process.
import asyncio
import ctypes
import json
import os
import signal
import subprocess
import time

import clocks
import proxy

PR_SET_PDEATHSIG = 1
KEYS, CLIENTS, LANES, PAUSE_MS, TIMEOUT_MS = 40, 5, 8, 40, 4000
RESTART_SECONDS = 0.3
CLIENTS_PLANTS = ("keyless", "reread", "split")  # bugs of chaos_client.c; others are chaos_silo.c's
LIBC = ctypes.CDLL(None)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Silo:
    """A silo program, which is started again and again."""

    def __init__(self, name, folder, command, address):
        self.name, self.folder, self.command, self.address = name, folder, command, address
        self.process = None
        self.wanted = False  # should it run?
        self.expects_end = False
        self.clock = None    # None: those of the machine
        self.pids = []
        self.crashes = []
        self.log_at = 0      # where the log of this process begins

    def path(self, suffix):
        return os.path.join(self.folder, "%s.%s" % (self.name, suffix))

    def start(self):
        self.wanted, self.expects_end = True, False
        environment = self.clock.environment() if self.clock else {}
        with open(self.path("out"), "wb") as out, open(self.path("log"), "ab") as log:
            log.write(b"---- start at %.3f\n" % time.monotonic())
            log.flush()
            self.log_at = log.tell()
            self.process = subprocess.Popen(self.command, stdout=out, stderr=log,
                                            stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
                                            env=dict(os.environ, **environment))
        self.pids.append(self.process.pid)

    def is_ready(self):
        with open(self.path("out"), "rb") as out:
            return self.runs() and b"ready" in out.read()

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        if self.runs():
            self.process.send_signal(number)

    def kill(self):
        self.wanted, self.expects_end = False, True
        self.send(signal.SIGKILL)
        self.process.wait()

    def leave(self):
        self.wanted, self.expects_end = False, True
        self.send(signal.SIGTERM)

    def pause(self):
        self.send(signal.SIGSTOP)

    def resume(self):
        self.send(signal.SIGCONT)

    def could_not_start(self):
        """The store may be away; else status 1 may be a sanitizer's."""
        with open(self.path("log"), "rb") as log:
            log.seek(self.log_at)
            return self.process.returncode == 1 and b"silo cannot start" in log.read()

    def look(self):
        """Notes a silo that has ended by itself. out: should it be started?"""
        if self.process is None or self.runs():
            return False
        if not self.expects_end and not self.could_not_start():
            self.crashes.append("%s ended with %d" % (self.name, self.process.returncode))
        self.expects_end = True
        return self.wanted


class Client:
    """A client program, and how far its lines are read."""

    def __init__(self, number, folder):
        self.number = number
        self.path = os.path.join(folder, "client-%d.jsonl" % number)
        self.log = os.path.join(folder, "client-%d.log" % number)
        self.process = None
        self.at, self.rest = 0, b""

    def start(self, program, plant, gateways):
        arguments = [self.number, LANES, KEYS, PAUSE_MS, TIMEOUT_MS, plant] + gateways
        with open(self.path, "wb") as out, open(self.log, "ab") as log:
            self.process = subprocess.Popen([program] + [str(a) for a in arguments], stdout=out,
                                            stderr=log, stdin=subprocess.PIPE,
                                            preexec_fn=die_with_parent)

    def read_lines(self):
        """out: the operations that have ended since the last call."""
        with open(self.path, "rb") as file:
            file.seek(self.at)
            data = file.read()
        self.at += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        return [json.loads(line) for line in lines]


class Cluster:
    """Five silos, in a network of links, and clients."""

    def __init__(self, build, folder, server, network, settings):
        self.build, self.folder = build, folder
        self.server, self.network, self.settings = server, network, settings
        self.silos, self.clients = [], []
        plants = settings.plant, "none"
        self.clients_plant, self.silos_plant = (
            plants if settings.plant in CLIENTS_PLANTS else plants[::-1])
        self.last_ok = {}   # {key: when its last operation that succeeded had begun, in seconds}
        self.recent = []    # when operations that succeeded had ended, of the last second

    def program(self, name):
        return os.path.join(self.build, "tests", "chaos", name)

    async def add_silo(self, number, port):
        name = "silo-%d" % number
        place = await self.network.place(name, port, self.server)
        command = place.prefix + [
            self.program("chaos_silo"), "--listen", place.listen, "--advertise", place.advertise,
            "--store", self.server.address(place.store_host, place.store_port), "--insecure",
            "--cluster", "chaos", "--quiet", "--lease-ms", str(self.settings.lease), "--workers",
            "2", "--transport", self.settings.transport, "--plant", self.silos_plant]
        silo = Silo(name, self.folder, command, place.advertise)
        if clocks.find_library() and number in self.settings.rates:
            silo.clock = clocks.Clock(silo.path("clock"), self.settings.rates[number])
        self.silos.append(silo)

    def start_silos(self):
        for silo in self.silos:
            silo.start()

    def start_clients(self):
        addresses = [silo.address for silo in self.silos]
        for i in range(CLIENTS):
            client = Client(i + 1, self.folder)
            client.start(self.program("chaos_client"), self.clients_plant,
                         addresses[i:] + addresses[:i])
            self.clients.append(client)

    async def supervise(self, history):
        """Starts silos that have ended, and reads what the clients print. Runs until cancelled."""
        while True:
            for silo in self.silos:
                if silo.look():
                    await asyncio.sleep(RESTART_SECONDS)
                    silo.start()
            self.read_clients(history)
            await asyncio.sleep(0.05)

    def read_clients(self, history):
        now = time.monotonic()
        for client in self.clients:
            for op in client.read_lines():
                history.add(op)
                if op["c"] == 0:
                    key = op["k"]
                    self.last_ok[key] = max(self.last_ok.get(key, 0), op["s"] / 1e9)
                    self.recent.append(op["e"] / 1e9)
        self.recent = [end for end in self.recent if end > now - 1]

    def is_well(self, since):
        """Do all silos serve, has each register answered a call that began after `since`, and is
        the load as high as it has to be?"""
        return (all(silo.is_ready() for silo in self.silos) and
                len(self.recent) >= self.settings.rate and
                all(self.last_ok.get(key, 0) > since for key in range(KEYS)))

    def ended_clients(self):
        return [c.log for c in self.clients if c.process.poll() is not None]

    async def stop_clients(self, seconds):
        """Lets the clients read each register for the last time. out: have all ended well?"""
        for client in self.clients:
            client.process.stdin.close()
        end = time.monotonic() + seconds
        while any(c.process.poll() is None for c in self.clients) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        return all(c.process.poll() == 0 for c in self.clients)

    def close(self):
        for one in self.silos + self.clients:
            if one.process is not None and one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        clocks.remove_shared_memory(pid for silo in self.silos for pid in silo.pids)
