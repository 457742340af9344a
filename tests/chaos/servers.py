# servers.py - the servers of the engines: each is started, killed and paused by the faults.
#
# A new engine: a class with the functions of Server, and a row in ENGINES.
import glob
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

START_SECONDS = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children_of(pid):
    """Only processes that run: a zombie has ended."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(path.split("/")[2]))
    return found


class Server:
    """A server in a folder of its own."""

    programs = ()   # that must be installed
    package = ""

    def __init__(self, folder, hosts):
        """in: hosts: where it listens; a silo reaches it at the last one, or by a proxy."""
        self.folder, self.hosts, self.port = folder, hosts, free_port()
        self.process = None

    @classmethod
    def is_installed(cls):
        return all(shutil.which(program) for program in cls.programs)

    def prepare(self):
        """Makes its files."""

    def command(self):
        raise NotImplementedError

    def answers(self):
        raise NotImplementedError

    def address(self, host, port):
        """The address of the store, for a silo that reaches the server there."""
        raise NotImplementedError

    def spawn(self):
        user = "postgres" if os.getuid() == 0 and isinstance(self, Postgres) else None
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(self.command(), cwd=self.folder, stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, user=user,
                                            start_new_session=True)

    def start(self):
        """A server may end at once while parts of a killed one are still there."""
        end = time.monotonic() + START_SECONDS
        self.spawn()
        while not self.answers():
            if time.monotonic() > end:
                raise RuntimeError("the server does not start: see %s/log" % self.folder)
            time.sleep(0.02)
            if self.process.poll() is not None:
                self.spawn()

    def signal_all(self, number):
        for pid in [self.process.pid] + children_of(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def pause(self):
        self.signal_all(signal.SIGSTOP)

    def resume(self):
        self.signal_all(signal.SIGCONT)

    def kill(self):
        if self.process and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)  # so that it starts no more
            self.signal_all(signal.SIGKILL)
            self.process.wait()

    def close(self):
        """Ends it in order, so that it removes its shared memory."""
        if self.process and self.process.poll() is None:
            self.resume()
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


class Postgres(Server):
    package = "postgresql"

    @staticmethod
    def find_programs():
        return sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]

    @classmethod
    def is_installed(cls):
        return bool(glob.glob("/usr/lib/postgresql/*/bin/initdb"))

    def prepare(self):
        os.chmod(self.folder, 0o777)
        subprocess.run([self.find_programs() + "/initdb", "-D", "data", "-A", "trust", "-U", "teff",
                        "-E", "UTF8", "--locale=C", "--no-sync"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL, user="postgres" if os.getuid() == 0 else None)
        with open(os.path.join(self.folder, "data", "pg_hba.conf"), "a") as file:
            file.writelines("host all all %s/24 trust\n" % host for host in self.hosts)

    def command(self):
        return [self.find_programs() + "/postgres", "-D", "data", "-k", self.folder, "-p",
                str(self.port), "-c", "listen_addresses=" + ",".join(self.hosts), "-c",
                "max_connections=120", "-c", "shared_buffers=16MB",
                # after a kill: one syncfs() instead of an fsync() of each of 1,000 files
                "-c", "recovery_init_sync_method=syncfs"]

    def answers(self):
        return subprocess.run([self.find_programs() + "/pg_isready", "-q", "-h", "127.0.0.1", "-p",
                               str(self.port)]).returncode == 0

    def address(self, host, port):
        return "postgres:host=%s port=%d user=teff dbname=postgres" % (host, port)


class Redis(Server):
    programs = ("redis-server",)
    package = "redis-server"

    def command(self):
        return ["redis-server", "--bind", *self.hosts, "--port", str(self.port), "--dir",
                self.folder, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
                "--protected-mode", "no"]

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                s.sendall(b"PING\r\n")
                return s.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def address(self, host, port):
        return "redis:%s:%d/chaos" % (host, port)


class Etcd(Server):
    """A cluster of one member."""

    programs = ("etcd",)
    package = "etcd-server"

    def __init__(self, folder, hosts):
        super().__init__(folder, hosts)
        self.peer_port = free_port()

    def command(self):
        urls = ",".join("http://%s:%d" % (host, self.port) for host in self.hosts)
        peer = "http://127.0.0.1:%d" % self.peer_port
        return ["etcd", "--name", "m", "--data-dir", self.folder + "/data",
                "--listen-client-urls", urls, "--advertise-client-urls", urls,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", "m=" + peer]

    def answers(self):
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/health" % self.port, None, 1) as page:
                return b'"true"' in page.read()
        except OSError:
            return False

    def address(self, host, port):
        return "etcd://%s:%d/chaos" % (host, port)


class Sqlite(Server):
    """A file: there is no server that could fail."""

    def start(self):
        """Nothing is to be started."""

    def address(self, host, port):
        return "sqlite:%s/chaos.db" % self.folder


ENGINES = {"postgres": Postgres, "redis": Redis, "etcd": Etcd, "sqlite": Sqlite}
