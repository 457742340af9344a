# check_test.py - the check of histories finds each violation that is planted in a good history, and
# nothing in the good one; the proxy's frames come out as they went in, or as the rules say.
import asyncio
import copy
import random
import struct
import unittest

import check
import proxy

ACTIVATIONS = (11, 22)
MS = 1000000


def operation(kind, start, end, version, activation, tail, writer=0, code=0, unknown=0):
    op = {"o": kind, "k": 1, "s": start * MS, "e": end * MS, "c": code, "u": unknown}
    if kind != check.READ:
        op["i"] = writer
    if code == 0:
        op.update({"v": version, "a": activation, "t": tail})
    return op


def make_history():
    """20 versions, of two activations after each other, each written and then read; a read that
    began before the write; write 7 with an unknown outcome; a failed write; a last read. Writes 5
    and 9 have a key; the call of 9 was made three times, and once more after the change of the
    activation."""
    history, facts = [], []
    for version in range(1, 21):
        activation, at, writer = ACTIVATIONS[version > 10], version * 100, 1000 + version
        facts.insert(0, [writer, activation])
        unknown = version == 7
        history.append(operation(check.WRITE, at, at + 20, version, activation, facts[:1], writer,
                                 3 if unknown else 0, int(unknown)))
        history.append(operation(check.READ, at + 10, at + 30, version - 1, activation,
                                 facts[1:9]) if version != 11 else
                       operation(check.READ, at + 10, at + 30, version, activation, facts[:9]))
        history.append(operation(check.READ, at + 40, at + 50, version, activation, facts[:9]))
    history[3 * 4]["n"], history[3 * 8]["n"] = 1, 3
    history.append(operation(check.AGAIN, 1210, 1220, 9, 11, [[1009, 11]], 1009))
    history[-1]["n"] = 4
    history.append(operation(check.WRITE, 2100, 2110, 0, 0, [], 1999, 6))
    history.append(operation(check.READ, 2200, 2210, 20, ACTIVATIONS[1], facts[:]))
    return history


def kinds_of(operations):
    history = check.History()
    for op in operations:
        history.add(op)
    return {problem.kind for problem in history.check()}


def make_pair(kind, start, end, own, other, writer=0):
    """A transaction of registers 1 and 2. in: own, other, (version, activation, writers)."""
    op = operation(kind, start, end, own[0], own[1], [[w, own[1]] for w in own[2]], writer)
    op.update(b=2, bv=other[0], ba=other[1], bt=[[w, other[1]] for w in other[2]])
    return op


def make_pairs():
    """Transactions 101 and 102 write both registers, one after the other, 103 has an unknown
    outcome and wrote both, write 104 only register 2; reads between them and at the end."""
    late = operation(check.READ, 500, 510, 4, 62, [[w, 62] for w in (104, 103, 102, 101)])
    lone = operation(check.WRITE, 400, 410, 4, 62, [[104, 62]], 104)
    late["k"] = lone["k"] = 2
    unknown = operation(check.WRITE, 300, 310, 0, 0, [], 103, 3, 1)
    unknown["b"] = 2
    return [make_pair(check.WRITE, 100, 120, (1, 61, [101]), (1, 62, [101]), 101),
            make_pair(check.READ, 130, 150, (1, 61, [101]), (1, 62, [101])),
            make_pair(check.WRITE, 200, 220, (2, 61, [102]), (2, 62, [102]), 102),
            make_pair(check.READ, 190, 230, (1, 61, [101]), (1, 62, [101])),
            unknown, lone, late,
            operation(check.READ, 500, 510, 3, 61, [[w, 61] for w in (103, 102, 101)])]


class Transactions(unittest.TestCase):
    def setUp(self):
        self.history = make_pairs()

    def expect(self, *kinds):
        self.assertEqual(kinds_of(self.history), set(kinds))

    def test_a_good_history(self):
        self.expect()

    def test_half_of_a_transaction(self):
        self.history[-1].update(v=2, t=[[102, 61], [101, 61]])
        self.expect("torn")

    def test_one_that_is_not_there_at_all(self):
        self.history[-1].update(v=2, t=[[102, 61], [101, 61]])
        self.history[-2].update(v=3, t=[[w, 62] for w in (104, 102, 101)])
        self.history[-3].update(v=3)
        self.expect()

    def test_a_read_that_sees_half_of_a_transaction(self):
        self.history[3].update(bv=2, bt=[[102, 62]])
        self.expect("not_serializable")

    def test_two_reads_that_see_two_writes_in_different_orders(self):
        """Each of two writes at once is seen without the other."""
        first = operation(check.WRITE, 600, 700, 4, 61, [[105, 61]], 105)
        second = operation(check.WRITE, 600, 700, 5, 62, [[106, 62]], 106)
        second["k"] = 2
        self.history += [first, second,
                         make_pair(check.READ, 610, 690, (4, 61, [105]), (4, 62, [104])),
                         make_pair(check.READ, 610, 690, (4, 61, [105]), (5, 62, [106])),
                         make_pair(check.READ, 710, 720, (4, 61, [105]), (5, 62, [106]))]
        self.expect()
        self.history[-2] = make_pair(check.READ, 610, 690, (3, 61, [103]), (5, 62, [106]))
        self.expect("not_serializable")

    def test_an_order_against_time(self):
        """Write 105 of register 1 had ended before write 106 of register 2 began, and a read that
        went on all the time has only seen the second."""
        first = operation(check.WRITE, 600, 610, 4, 61, [[105, 61]], 105)
        second = operation(check.WRITE, 620, 630, 5, 62, [[106, 62]], 106)
        second["k"] = 2
        self.history += [first, second,
                         make_pair(check.READ, 590, 690, (3, 61, [103]), (5, 62, [106])),
                         make_pair(check.READ, 710, 720, (4, 61, [105]), (5, 62, [106]))]
        self.expect("not_serializable")


class Planted(unittest.TestCase):
    """Each test changes the good history, whose operations are three a version."""

    def setUp(self):
        self.history = make_history()

    def write(self, version):
        return self.history[3 * (version - 1)]

    def late_read(self, version):
        return self.history[3 * (version - 1) + 2]

    def expect(self, *kinds):
        self.assertEqual(kinds_of(self.history), set(kinds))

    def test_a_good_history(self):
        self.expect()

    def test_the_order_of_lines_does_not_count(self):
        random.Random(1).shuffle(self.history)
        self.expect()

    def test_figures(self):
        history = check.History()
        for op in self.history:
            history.add(op)
        self.assertEqual((history.operations, history.unknown, history.failed), (63, 1, 1))
        self.assertEqual(history.keyed, {"keyed": 2, "repeated": 1, "asked_again": 1,
                                         "unanswered": 0})
        self.assertEqual(history.get_outage(), (160 * MS, 2050 * MS, 1))

    def test_a_lost_last_write(self):
        last = self.history[-1]
        last["v"], last["t"] = 19, last["t"][1:]
        self.assertIn("lost", kinds_of(self.history))

    def test_a_lost_write_whose_version_was_made_again(self):
        for op in self.history[3 * 15 + 1:]:
            if op["c"] == 0:
                op["t"] = [[5555, 22] if pair[0] == 1016 else pair for pair in op["t"]]
        self.history.append(operation(check.WRITE, 1650, 1660, 16, 22, [[5555, 22]], 5555))
        self.assertIn("lost", kinds_of(self.history))

    def test_a_stale_read(self):
        read = self.late_read(15)
        read["v"], read["t"] = 14, read["t"][1:]
        self.expect("stale_reads")

    def test_a_read_older_than_an_earlier_read(self):
        """The write itself has not been acknowledged, but a read has seen it."""
        read = copy.deepcopy(self.late_read(7))
        read["s"], read["e"] = 770 * MS, 780 * MS
        read["v"], read["t"] = 6, read["t"][1:]
        self.history.append(read)
        self.expect("stale_reads")

    def test_a_doubled_write(self):
        for op in self.history:
            if op["c"] == 0:
                op["t"] = [[1012, 22] if pair[0] == 1013 else pair for pair in op["t"]]
        self.assertIn("doubled", kinds_of(self.history))

    def test_a_doubled_write_that_only_one_read_shows(self):
        read = self.late_read(18)
        read["v"], read["t"] = 19, [[1018, 22]] + read["t"]
        self.assertIn("doubled", kinds_of(self.history))

    def again(self):
        return next(op for op in self.history if op["o"] == check.AGAIN)

    def test_a_key_counted_twice(self):
        """Both calls made a version: 9, which was answered, and 12, which only reads show."""
        for op in self.history:
            if op["c"] == 0:
                op["t"] = [[1009, 22] if pair[0] == 1012 else pair for pair in op["t"]]
        self.history.remove(self.write(12))
        self.assertIn("doubled", kinds_of(self.history))

    def test_a_key_counted_twice_and_answered_with_the_second_version(self):
        self.again().update(v=12, a=22, t=[[1009, 22]])
        self.assertIn("doubled", kinds_of(self.history))

    def test_a_key_whose_repeated_calls_count_twice_before_an_answer(self):
        self.write(9).update(v=12, a=22, t=[[1009, 22]])
        self.again().update(v=12, a=22, t=[[1009, 22]])
        self.assertIn("doubled", kinds_of(self.history))

    def test_a_second_answer_that_is_another_writes(self):
        self.again().update(v=12, a=22, t=[[1012, 22]])
        self.expect("wrong_answers")

    def test_a_second_answer_of_another_activation(self):
        self.again()["a"] = 22
        self.expect("wrong_answers")

    def test_an_answer_that_is_another_writes(self):
        self.write(9).update(v=8, t=[[1008, 11]])
        self.again().update(v=8, t=[[1008, 11]])
        self.assertIn("wrong_answers", kinds_of(self.history))

    def test_an_answer_of_a_version_that_nobody_made(self):
        self.write(9).update(v=0, t=[])
        self.again().update(v=0, t=[])
        self.assertIn("wrong_answers", kinds_of(self.history))

    def test_an_answered_key_that_was_lost(self):
        for op in self.history:
            if op["c"] == 0:
                op["t"] = [[5555, 11] if pair[0] == 1009 and op["o"] == check.READ else pair
                           for pair in op["t"]]
        self.history.append(operation(check.WRITE, 950, 960, 9, 11, [[5555, 11]], 5555))
        self.assertIn("lost", kinds_of(self.history))

    def test_a_key_that_is_refused(self):
        self.again()["c"] = 9
        self.expect("refused")

    def test_a_key_without_an_answer_may_have_counted(self):
        self.write(9).update(c=3, u=1)
        self.history.remove(self.again())
        self.expect()

    def test_a_failed_write_that_has_an_effect(self):
        write = self.write(7)
        write["u"] = 0
        self.expect("phantom")

    def test_a_write_that_nobody_sent(self):
        self.history.remove(self.write(7))
        self.expect("phantom")

    def test_a_version_without_a_writer(self):
        """The unknown write has made version 7, so nobody can have made 8."""
        for op in self.history:
            if op["c"] == 0:
                at = op["v"] - 8
                if 0 <= at < len(op["t"]):
                    op["t"] = op["t"][:at]
        self.history = [op for op in self.history if op.get("v") != 8]
        self.history = [op for op in self.history if op.get("i") != 1008]
        self.expect("phantom")

    def test_a_version_seen_before_its_write(self):
        read = self.late_read(14)
        read["v"], read["t"] = 15, [[1015, 22]] + read["t"]
        self.assertIn("phantom", kinds_of(self.history))

    def test_two_activations_commit_one_version(self):
        self.history.append(operation(check.WRITE, 1500, 1520, 15, 33, [[5555, 33]], 5555))
        self.assertIn("overlapping", kinds_of(self.history))

    def test_commits_of_two_activations_alternate(self):
        for op in self.history:
            if op["c"] == 0:
                op["t"] = [[w, 11 if w == 1014 else a] for w, a in op["t"]]
                op["a"] = 11 if op.get("i") == 1014 else op["a"]
        self.expect("overlapping")

    def test_an_old_activation_answers_after_a_new_one(self):
        """It answers what is true, but it should not be there."""
        self.late_read(12)["a"] = 11
        self.expect("overlapping")

    def test_no_read_after_the_last_write(self):
        self.history = [op for op in self.history if op["e"] <= 2020 * MS]
        self.assertIn("unread", kinds_of(self.history))


def make_frame(kind, payload):
    return struct.pack("<IBBHH", 6 + len(payload), kind, 0, 0, 0) + payload


class Proxies(unittest.TestCase):
    """One connection over a proxy: frames, with numbers, from `silo-1` to `silo-2`."""

    HELLO = make_frame(16, b"...127.0.0.1:40001...")

    def run_link(self, rule, frames, act=None):
        """out: what came out before act(network, links), and in the end."""
        return asyncio.run(self.carry(rule, frames, act))

    async def carry(self, rule, frames, act):
        network = proxy.Network(random.Random(7))
        network.names[b"127.0.0.1:40001"] = "silo-1"
        links, came = {("silo-1", "silo-2"): rule}, bytearray()
        ended = asyncio.Event()

        async def take(reader, writer):
            try:
                while data := await reader.read(1000):
                    came.extend(data)
            except ConnectionError:
                pass
            writer.close()
            ended.set()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = await proxy.listen(network, "silo-2", server.sockets[0].getsockname()[1])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        if rule:
            network.add_rules(links)
        stream = self.HELLO + b"".join(frames)
        for at in range(0, len(stream), 7):  # no piece is a frame
            writer.write(stream[at:at + 7])
            await writer.drain()
        before = b""
        if act:
            while sum(len(pump.queue) for pump in network.pumps) < len(frames) + 1:
                await asyncio.sleep(0)
            before = bytes(came)
            act(network, links)
        if not writer.is_closing():
            writer.write_eof()
        await asyncio.wait_for(ended.wait(), 10)
        server.close()
        return before, proxy.Frames().feed(bytes(came))

    def numbered(self, n, kind=1):
        return [make_frame(kind, b"%d" % i * (i % 50 + 1)) for i in range(n)]

    def test_without_a_rule(self):
        frames = self.numbered(100)
        self.assertEqual(self.run_link(None, frames)[1], [self.HELLO] + frames)

    def test_a_partition_holds_and_then_delivers(self):
        frames = self.numbered(20)
        before, after = self.run_link(proxy.Rule(held=True), frames,
                                      lambda network, links: network.remove_rules(links))
        self.assertEqual(before, b"")
        self.assertEqual(after, [self.HELLO] + frames)

    def test_a_partition_ends_with_a_reset(self):
        before, after = self.run_link(proxy.Rule(held=True), self.numbered(20),
                                      lambda network, links: network.remove_rules(links, True))
        self.assertEqual((before, after), (b"", []))

    def test_losses_take_whole_messages_but_no_control_frames(self):
        frames = self.numbered(100) + self.numbered(50, kind=19)
        _, after = self.run_link(proxy.Rule(loss=0.5), frames)
        self.assertTrue(set(after) <= set([self.HELLO] + frames))
        self.assertEqual(after[-50:], frames[-50:])
        self.assertTrue(70 < len(after) < 140, len(after))

    def test_reordering_loses_nothing(self):
        frames = self.numbered(100)
        _, after = self.run_link(proxy.Rule(reorder=0.3), frames)
        self.assertNotEqual(after, [self.HELLO] + frames)
        self.assertEqual(sorted(after), sorted([self.HELLO] + frames))

    def test_a_delay_keeps_the_order(self):
        frames = self.numbered(100)
        before, after = self.run_link(proxy.Rule(delay=0.3, jitter=0.05), frames,
                                      lambda network, links: None)
        self.assertEqual(before, b"")
        self.assertEqual(after, [self.HELLO] + frames)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
