# proxy.py - TCP proxies between the processes, which hold, delay, lose and reorder frames.
#
# A link is a pair (from, to) of names of nodes; each direction has rules of its own. A silo's
# proxy learns from the first frame of a connection, the hello, which silo or client has dialled.
# Bytes that a partition holds come late, as TCP would send them again, or never, if the partition
# ends with a reset. Frames are looked at only where they begin and end (message/frame.h). The way
# to the store has no frames that are known here: it is held, delayed and reset only.
import asyncio
import collections
import struct

HEAD = struct.Struct("<IB")  # length of the rest, kind
CONTROL_KIND = 16            # the least kind of the handshake's frames and heartbeats
READ_BYTES = 1 << 16
QUEUE_MAX = 4096             # held frames a connection; more stay in the sockets
HELLO_SECONDS = 10
CLIENT, STORE = "client", "store"

# Where a silo runs: the options --listen and --advertise, where it finds the store's server, and
# what its command begins with.
Place = collections.namedtuple("Place", "listen advertise store_host store_port prefix")


class Rule:
    """What happens to the frames of a link."""

    def __init__(self, held=False, delay=0, jitter=0, loss=0, reorder=0):
        self.held = held                         # nothing gets through
        self.delay, self.jitter = delay, jitter  # seconds; jitter is random, and keeps the order
        self.loss = loss                         # the part of the messages that vanish
        self.reorder = reorder                   # the part of the messages that others overtake


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self):
        self.rest = b""

    def feed(self, data):
        """out: the complete frames."""
        data = self.rest + data if self.rest else data
        at, frames = 0, []
        while len(data) - at >= 4:
            size = 4 + int.from_bytes(data[at:at + 4], "little")
            if len(data) - at < size:
                break
            frames.append(data[at:at + size])
            at += size
        self.rest = data[at:]
        return frames


class Bytes:
    """As Frames, where there are none."""

    @staticmethod
    def feed(data):
        return [data]


def is_message(frame):
    return HEAD.unpack_from(frame)[1] < CONTROL_KIND


class Network:
    """The rules of all links, and the connections over them."""

    knows_frames = True

    def __init__(self, rng):
        self.rng = rng
        self.rules = {}
        self.names = {}        # {advertised address in bytes: name}
        self.pumps = set()
        self.changed = asyncio.Event()
        self.lost = self.reordered = 0

    def open(self):
        """The proxies are opened by place()."""

    def close(self):
        """The proxies end with the event loop."""

    async def place(self, name, port, server):
        """Starts the proxies of a silo."""
        at = "127.0.0.1:%d"
        advertised = await listen(self, name, port)
        store_port = await listen(self, STORE, server.port, source=name)
        return Place(at % port, at % advertised, "127.0.0.1", store_port, [])

    def add_rules(self, rules):
        self.rules.update(rules)
        self.wake()

    def remove_rules(self, links, reset=False):
        """in: reset: end the connections over these links, instead of delivering what was held."""
        for link in links:
            self.rules.pop(link, None)
        if reset:
            for pump in [p for p in self.pumps if p.link in links]:
                pump.connection.close()
        self.wake()

    def wake(self):
        self.changed.set()
        self.changed = asyncio.Event()

    def name_of(self, hello):
        """Who sends this hello? A client's has no address."""
        for address, name in self.names.items():
            if address in hello:
                return name
        return CLIENT


class Connection:
    """One that came in, the one that continues it, and their two pumps."""

    def __init__(self, *writers):
        self.writers = writers
        self.ends = asyncio.Event()

    def close(self):
        self.ends.set()
        for writer in self.writers:
            writer.transport.abort()


class Pump:
    """Carries the bytes of one direction."""

    def __init__(self, network, link, connection, reader, writer, cutter):
        self.network, self.link, self.connection = network, link, connection
        self.reader, self.writer, self.cutter = reader, writer, cutter
        self.queue = collections.deque()  # (when it is due, frame); the frame None: the end
        self.filled, self.emptied = asyncio.Event(), asyncio.Event()
        self.framed = isinstance(cutter, Frames)
        self.due = 0
        self.late = 0          # messages that others may still overtake
        self.is_over = False   # all has been read

    async def run(self, first=b""):
        self.network.pumps.add(self)
        tasks = [asyncio.ensure_future(self.read(first)), asyncio.ensure_future(self.deliver()),
                 asyncio.ensure_future(self.connection.ends.wait())]
        try:
            await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.network.pumps.discard(self)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.writer.close()

    async def read(self, data):
        try:
            while data or (data := await self.reader.read(READ_BYTES)):
                for frame in self.cutter.feed(data):
                    self.take(frame)
                data = b""
                while len(self.queue) > QUEUE_MAX:
                    self.emptied.clear()
                    await self.emptied.wait()
        except OSError:
            pass
        self.is_over = True
        if not self.late:
            self.put(None)

    def put_late(self, frame):
        self.late -= 1
        self.put(frame)
        if self.is_over and not self.late:
            self.put(None)

    def put(self, frame):
        self.queue.append((self.due, frame))
        self.filled.set()

    def take(self, frame):
        """Applies the link's rule to a frame that has come."""
        rule, rng = self.network.rules.get(self.link), self.network.rng
        if not rule:
            return self.put(frame)
        loop = asyncio.get_running_loop()
        if rule.delay or rule.jitter:
            self.due = max(self.due, loop.time() + rule.delay + rng.random() * rule.jitter)
        if self.framed and is_message(frame):
            if rng.random() < rule.loss:
                self.network.lost += 1
                return None
            if rng.random() < rule.reorder:
                self.network.reordered += 1
                self.late += 1
                loop.call_later(rule.delay + rng.random() * (rule.jitter or 0.02), self.put_late,
                                frame)
                return None
        return self.put(frame)

    def is_held(self):
        rule = self.network.rules.get(self.link)
        return rule and rule.held

    async def deliver(self):
        loop = asyncio.get_running_loop()
        while True:
            while not self.queue:
                self.filled.clear()
                await self.filled.wait()
            while self.is_held():
                await self.network.changed.wait()
            due, frame = self.queue[0]
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
                continue  # it may be held by now
            self.queue.popleft()
            self.emptied.set()
            if frame is None or self.writer.is_closing():
                return
            self.writer.write(frame)
            if not self.queue:
                await self.writer.drain()


async def read_hello(reader):
    """out: the first frame, and what came behind it."""
    frames, data = Frames(), b""
    while not frames.feed(data):
        data = await reader.read(READ_BYTES)
        if not data:
            raise ConnectionError("it ended before its hello")
        frames.rest, data = b"", frames.rest + data
    return data


async def carry(network, name, port, source, reader, writer):
    """One connection. in: source: who dials; None: its hello says so."""
    try:
        first = b""
        if not source:
            first = await asyncio.wait_for(read_hello(reader), HELLO_SECONDS)
        dialler = source or network.name_of(first)
        there, onward = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, asyncio.TimeoutError):
        writer.transport.abort()
        return
    connection = Connection(writer, onward)
    cutter = Bytes if source else Frames
    pumps = (Pump(network, (dialler, name), connection, reader, onward, cutter()),
             Pump(network, (name, dialler), connection, there, writer, cutter()))
    try:
        await asyncio.gather(pumps[0].run(first), pumps[1].run())
    finally:
        connection.close()


async def listen(network, name, port, source=None):
    """Starts a proxy to a port. in: name: of the node there; source: the only node that dials.
    out: the proxy's port."""
    async def accept(reader, writer):
        try:
            await carry(network, name, port, source, reader, writer)
        except (OSError, asyncio.CancelledError):  # cancelled: the run is over
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    own = server.sockets[0].getsockname()[1]
    if not source:
        network.names[b"127.0.0.1:%d" % own] = name
    return own
