# namespaces.py - silos in network namespaces of their own, whose packets are dropped by nftables.
#
# As proxy.py, but a partition drops packets, so that TCP sends them again, later and later, and a
# connect() gets no answer. Nothing knows frames here: packets may vanish, but are not delayed.
# Silos are at .1 and up, on one bridge; clients and the store are in the namespace of the machine,
# at addresses of their own. Packets are dropped where they arrive.
import os
import shutil
import subprocess

from proxy import CLIENT, STORE, Place

NETWORK = "10.237.%d" % (os.getpid() % 256)
BRIDGE = "chaos%d" % os.getpid()
ADDRESSES = {CLIENT: NETWORK + ".250", STORE: NETWORK + ".251"}
STORE_HOST = ADDRESSES[STORE]
TABLE = "table inet %s {\nchain in {\ntype filter hook input priority 0\n%s\n}\n}\n"


def run(*command, text=None):
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)


def are_allowed():
    """Needs root, and the programs ip and nft."""
    if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
        return False
    try:
        run("ip", "netns", "add", BRIDGE)
        run("ip", "netns", "exec", BRIDGE, "nft", "-f", "-", text=TABLE % (BRIDGE, ""))
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "link", "del", BRIDGE)
        return True
    except subprocess.CalledProcessError:
        return False
    finally:
        subprocess.run(["ip", "netns", "del", BRIDGE], capture_output=True)


class Network:
    """The rules of all links between namespaces."""

    knows_frames = False

    def __init__(self):
        self.rules = {}
        self.spaces, self.ends = {}, []  # {node: its namespace}; the bridge's ends of its links
        self.addresses = dict(ADDRESSES)

    def open(self):
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        for address in ADDRESSES.values():
            run("ip", "address", "add", address + "/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")

    async def place(self, name, port, server):
        """Makes a namespace for a silo."""
        number = len(self.spaces) + 1
        space, end = "%s-%d" % (BRIDGE, number), "%s.%d" % (BRIDGE, number)
        self.ends.append(end)
        self.spaces[name], self.addresses[name] = space, "%s.%d" % (NETWORK, number)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", end, "master", BRIDGE, "up")
        for command in (("address", "add", self.addresses[name] + "/24", "dev", "eth0"),
                        ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
            run("ip", "-n", space, *command)
        at = "%s:%d" % (self.addresses[name], port)
        return Place(at, at, STORE_HOST, server.port, ["ip", "netns", "exec", space])

    def add_rules(self, rules):
        self.rules.update(rules)
        self.write_rules()

    def remove_rules(self, links, reset=False):
        """in: reset: is ignored, as TCP continues the connections that have lived that long."""
        for link in links:
            self.rules.pop(link, None)
        self.write_rules()

    def list_rules(self, nodes):
        """out: nftables' rules for packets to these nodes."""
        lines = []
        for (sender, receiver), rule in sorted(self.rules.items()):
            if receiver in nodes and (rule.held or rule.loss):
                lines.append("ip saddr %s ip daddr %s %sdrop" % (
                    self.addresses[sender], self.addresses[receiver],
                    "" if rule.held else "numgen random mod 1000 < %d " % (1000 * rule.loss)))
        return "\n".join(lines)

    def write_rules(self):
        """Replaces the whole table in each namespace."""
        for space, nodes in [(None, (CLIENT, STORE))] + [(s, (n,)) for n, s in self.spaces.items()]:
            prefix = ["ip", "netns", "exec", space] if space else []
            text = "table inet %s\ndelete table inet %s\n" % (BRIDGE, BRIDGE)
            run(*prefix, "nft", "-f", "-", text=text + TABLE % (BRIDGE, self.list_rules(nodes)))

    def close(self):
        for end in self.ends + [BRIDGE]:
            subprocess.run(["ip", "link", "del", end], capture_output=True)
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        subprocess.run(["nft", "delete", "table", "inet", BRIDGE], capture_output=True)
