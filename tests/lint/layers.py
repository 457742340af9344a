# layers.py ROOT - each folder includes only itself and the folders below it.
import re
import sys

import source

# Lowest first. A folder may include every folder before it.
ORDER = ["base", "platform", "fiber", "sched", "process", "wire", "store", "node", "cluster",
         "silo", "grains"]

# Includes that go up all the same: (file, header) and why.
EXCEPTIONS = {
    ("runtime/platform/real.c", "sched/exec.h"): "this machine's table names its constructors",
    ("runtime/platform/real.c", "wire/net.h"): "as above",
    ("runtime/platform/real.c", "store/store.h"): "as above",
    ("runtime/process/msg.c", "wire/codec.h"): "a body is scanned before it is unpacked",
    ("runtime/process/msg.c", "wire/encode.h"): "a body is packed where it leaves",
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path):
    parts = path.split("/")
    if parts[0] == "runtime" and len(parts) > 2:
        return parts[1]
    return parts[0]


def includes(root, path):
    text = source.read(root, path)
    for match in INCLUDE.finditer(text):
        yield source.line_of(text, match.start()), match.group(1), match.group(2)


def check_layered(root, report, path, seen):
    own = folder_of(path)
    for line, quote, header in includes(root, path):
        target = header.split("/")[0]
        if quote == "<" or "/" not in header:
            continue
        if target not in ORDER:
            report.say(path, line, "%s is in no folder of the runtime" % header)
        elif ORDER.index(target) <= ORDER.index(own):
            continue
        elif (path, header) in EXCEPTIONS:
            seen.add((path, header))
        else:
            report.say(path, line, "%s is above %s: %s" % (target, own, header))


def check_public(root, report, path, what):
    """Only <teff/...>, generated headers of the same folder, and the system's."""
    for line, quote, header in includes(root, path):
        if quote == '"' and "/" in header:
            report.say(path, line, "%s sees only the public headers: %s" % (what, header))


def main(root):
    report = source.Report()
    seen = set()
    for path in source.files(root, ".c", ".h", ".S"):
        own = folder_of(path)
        if path.startswith("runtime/include/"):
            check_public(root, report, path, "a public header")
        elif own in ORDER:
            check_layered(root, report, path, seen)
        elif own in ("codegen", "samples"):
            check_public(root, report, path, own)
    for path, header in sorted(set(EXCEPTIONS) - seen):
        report.say(path, 1, "the exception for %s is not needed" % header)
    report.end("layers")


if __name__ == "__main__":
    main(sys.argv[1])
