# seams.py ROOT - the world is reached through the platform table only: no direct clocks, random
# numbers, sleeps, threads, sockets and files in runtime/ and grains/.
import re
import sys

import source

CLOCK = ("clock_gettime clock_getres time gettimeofday ftime times clock timespec_get alarm "
         "setitimer timer_create timerfd_create pthread_cond_timedwait pthread_cond_clockwait "
         "pthread_mutex_timedlock sem_timedwait mtx_timedlock cnd_timedwait").split()
RANDOM = "rand rand_r srand random srandom drand48 lrand48 getrandom getentropy arc4random".split()
SLEEP = "sleep usleep nanosleep clock_nanosleep sched_yield thrd_sleep thrd_yield pause".split()
THREAD = ("pthread_create thrd_create fork vfork posix_spawn posix_spawnp system popen "
          "clone").split()
SOCKET = ("socket socketpair connect bind listen accept accept4 sendto sendmsg recvfrom recvmsg "
          "getaddrinfo poll ppoll select pselect epoll_create epoll_create1 epoll_wait eventfd "
          "pipe pipe2").split()
FILE = ("open openat open64 creat fopen fdopen freopen opendir unlink unlinkat remove rename "
        "mkdir mkstemp mkdtemp tmpfile stat lstat fstat statfs fstatfs truncate ftruncate fsync "
        "fdatasync flock").split()
ENVIRONMENT = ("getenv secure_getenv setenv putenv syscall sysconf signal sigaction "
               "sigtimedwait").split()
KINDS = {"clock": CLOCK, "random": RANDOM, "sleep": SLEEP, "thread": THREAD, "socket": SOCKET,
         "file": FILE, "environment": ENVIRONMENT}

# Files that own a part of the world: (path pattern, kinds) and why.
OWNERS = [
    (r"runtime/os/.*", set(KINDS), "the real platform"),
    (r"runtime/store/sqlite(_\w+)?\.c", {"clock", "thread", "file"},
     "an engine with a thread of its own; its files are SQLite's"),
    (r"runtime/store/postgres\.c", {"socket"}, "its connection is libpq's; it waits for bytes"),
    (r"runtime/store/redis\.c", {"socket"}, "its connection is hiredis'; it looks for its end"),
    (r"runtime/stream/(reactor|resolve|socket\w*)\.c", {"socket", "thread", "file"},
     "the transport over sockets, some with a file; a thread that resolves a name"),
    (r"runtime/fiber/(stack|thread)\.c", {"environment"}, "page size; the fault handler"),
    (r"grains/silo/main\.c", {"environment"}, "waits for the signal that ends a silo program"),
]

CALL = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(w for k in KINDS.values() for w in k))
NNG = re.compile(r"#\s*include\s*<nng/")
NNG_OWNER = re.compile(r"runtime/stream/nng\w*\.[ch]$")


def kind_of(word):
    return next(kind for kind, words in KINDS.items() if word in words)


def allowed(path, kind):
    return any(re.fullmatch(owner, path) and kind in kinds for owner, kinds, _ in OWNERS)


def main(root):
    report = source.Report()
    for path in source.files(root, ".c", ".h"):
        if not path.startswith(("runtime/", "grains/")):
            continue
        text = source.code(source.read(root, path))
        for match in CALL.finditer(text):
            kind = kind_of(match.group(1))
            if not allowed(path, kind):
                report.say(path, source.line_of(text, match.start()),
                           "%s() goes past the platform (%s)" % (match.group(1), kind))
        match = NNG.search(text)
        if match and not NNG_OWNER.match(path):
            report.say(path, source.line_of(text, match.start()), "nng is the transport's alone")
    report.end("seams")


if __name__ == "__main__":
    main(sys.argv[1])
