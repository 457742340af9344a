# serializable.py - is there one order of operations on several registers, of which some are
# transactions of two, that agrees with the versions that they made and saw, and with time?
#
# There is one if and only if this graph has no cycle. Its nodes: operations; versions that are seen
# and whose writer is not known; moments at which an operation had ended. Its edges:
# - a version's writer -> the next version's writer,
# - a version's writer -> an operation that read it -> the next version's writer,
# - an operation -> the moment of its end -> the next such moment,
# - the last moment before an operation began -> that operation.
import bisect


class Graph:
    def __init__(self):
        self.edges = {}    # {node: [nodes]}
        self.before = {}   # {node: number of edges to it}

    def add(self, a, b):
        if a != b:
            self.edges.setdefault(a, []).append(b)
            self.before[b] = self.before.get(b, 0) + 1

    def drop_starts(self):
        """Removes nodes to which no edge leads, again and again."""
        ready = [node for node in self.edges if not self.before.get(node)]
        while ready:
            for node in self.edges.pop(ready.pop(), ()):
                self.before[node] -= 1
                if not self.before[node]:
                    ready.append(node)

    def find_cycle(self):
        """out: nodes, each with an edge to the next; []: there is no cycle."""
        self.drop_starts()
        if not self.edges:
            return []
        before = {b: a for a, nodes in self.edges.items() for b in nodes}  # one node before each
        path, at = {}, next(iter(self.edges))
        while at not in path:
            path[at] = len(path)
            at = before[at]
        return list(path)[path[at]:][::-1]


def get_ends(op):
    """out: (register, version) of each of the operation's registers; None: not known."""
    return [(op[key], op.get(version)) for key, version in (("k", "v"), ("b", "bv")) if key in op]


def add_versions(graph, ops, facts):
    """in: facts, {register: {version: writer}}."""
    writers = {op["i"]: n for n, op in enumerate(ops) if "i" in op}

    def node(key, version):
        writer = facts[key].get(version)
        return writers.get(writer, ("version", key, version))

    for key, known in facts.items():
        for version in range(1, max(known, default=0)):
            graph.add(node(key, version), node(key, version + 1))
    for n, op in enumerate(ops):
        for key, version in get_ends(op):
            if "i" not in op:
                graph.add(node(key, version), n)
                graph.add(n, node(key, version + 1))


def add_times(graph, ops):
    ends = sorted({op["e"] for op in ops if op["c"] == 0})
    for a, b in zip(ends, ends[1:]):
        graph.add(("end", a), ("end", b))
    for n, op in enumerate(ops):
        last = bisect.bisect_left(ends, op["s"])
        if last:
            graph.add(("end", ends[last - 1]), n)
        if op["c"] == 0:
            graph.add(n, ("end", op["e"]))


def find_cycle(ops, facts):
    """in: lines of chaos_client.c that succeeded, and writes of unknown outcome.
    out: operations, each of which precedes the next one, and the last the first; []: an order."""
    graph = Graph()
    add_versions(graph, ops, facts)
    add_times(graph, ops)
    return [ops[node] for node in graph.find_cycle() if isinstance(node, int)]
