# layers.py ROOT - each folder includes only itself and the folders below it, and public headers of
# these folders.
import os
import re
import sys

import source

# Lowest first. A folder may include every folder before it.
ORDER = ["base", "os", "memory", "fiber", "group", "sched", "fork", "message", "process", "engine",
         "stream", "link", "store", "call", "node", "cluster", "activation", "grains", "directory",
         "request", "reminder", "hosting", "silo", "testing"]

# The lowest folder that may include each public header: it, or a folder above, defines what the
# header declares.
PUBLIC = {"arena": "memory", "copy": "memory", "engine": "engine", "errno": "fiber",
          "error": "base", "filter": "call", "fork": "fork", "generated": "call", "grain": "call",
          "limits": "message", "log": "base", "observer": "call", "pid": "node",
          "process": "process", "reminder": "call",
          "sched": "group", "silo": "silo", "teff": "silo", "testing": "testing", "timer": "call",
          "version": "base"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path):
    parts = path.split("/")
    if parts[0] in ("runtime", "grains") and len(parts) > 2:
        return parts[1]
    return parts[0]


def includes(root, path):
    text = source.read(root, path)
    for match in INCLUDE.finditer(text):
        yield source.line_of(text, match.start()), match.group(1), match.group(2)


def folder_of_header(header):
    parts = header.split("/")
    return PUBLIC.get(parts[-1][:-len(".h")]) if parts[0] == "teff" else parts[0]


def is_ours(quote, header):
    """Else it is the system's, or generated from a .proto file of the same folder."""
    return "/" in header and (quote == '"' or header.split("/")[0] in ORDER + ["teff"])


def check_layered(root, report, path, own):
    for line, quote, header in includes(root, path):
        target = folder_of_header(header)
        if not is_ours(quote, header):
            continue
        if target not in ORDER or own not in ORDER:
            report.say(path, line, "%s is in no folder of the runtime"
                       % (header if target not in ORDER else path))
        elif ORDER.index(target) > ORDER.index(own):
            report.say(path, line, "%s is above %s: %s" % (target, own, header))


def check_public(root, report, path, what):
    """Only <teff/...>, generated headers of the same folder, and the system's."""
    for line, quote, header in includes(root, path):
        own_file = os.path.join(root, what, header)
        public = quote == "<" and header.startswith("teff/")
        if is_ours(quote, header) and not public and not os.path.exists(own_file):
            report.say(path, line, "%s sees only the public headers: %s" % (what, header))


def main(root):
    report = source.Report()
    for path in source.files(root, ".c", ".h", ".S"):
        own = folder_of(path)
        if path.startswith("runtime/include/"):
            check_public(root, report, path, "a public header")
            check_layered(root, report, path, folder_of_header(path[len("runtime/include/"):]))
        elif own in ORDER:
            check_layered(root, report, path, own)
        elif own in ("codegen", "samples"):
            check_public(root, report, path, own)
    report.end("layers")


if __name__ == "__main__":
    main(sys.argv[1])
