# clocks.py - wrong clocks of silos, by libfaketime (package faketime).
#
# A silo measures its lease by CLOCK_BOOTTIME. That clock cannot go back; it may be fast or slow,
# and jumps forward, as after the sleep of a machine. CLOCK_REALTIME may jump both ways. libfaketime
# shifts both, or the latter alone.
import glob
import os

LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"
# Two clocks may differ by 5 % before a lease is unsafe: runtime/cluster/heartbeat.c.
SKEW = 0.02
READ_SECONDS = "1"  # how often a silo looks at its file
DAY = 86400


def find_library():
    """out: None: it is not installed."""
    return next(iter(glob.glob(LIBRARY)), None)


class Clock:
    """The clocks of a silo. in: rate: of all of them; 0: only CLOCK_REALTIME is wrong."""

    def __init__(self, path, rate):
        self.path, self.rate, self.offset = path, rate, 0.0
        self.write()

    def write(self):
        with open(self.path + ".new", "w") as file:
            file.write("%+.3f%s\n" % (self.offset, " x%.4f" % self.rate if self.rate else ""))
        os.rename(self.path + ".new", self.path)

    def environment(self):
        values = {"LD_PRELOAD": find_library(), "FAKETIME_TIMESTAMP_FILE": self.path,
                  "FAKETIME_CACHE_DURATION": READ_SECONDS}
        if not self.rate:
            values["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        return values

    def jump(self, rng, seconds):
        """in: seconds: how far, if all clocks jump. out: what has been done."""
        self.offset += seconds if self.rate else rng.uniform(-DAY, DAY)
        self.write()
        return "%+.1f s %s" % (self.offset, "of all clocks" if self.rate else "of the wall clock")


def remove_shared_memory(pids):
    """A killed process leaves libfaketime's behind."""
    for pid in pids:
        for path in ("/dev/shm/faketime_shm_%d" % pid, "/dev/shm/sem.faketime_sem_%d" % pid):
            if os.path.exists(path):
                os.unlink(path)
