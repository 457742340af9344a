# mirror.py ROOT - each tests/unit/FOLDER/test_NAME.c tests FOLDER's source NAME, or a behaviour of
# several sources, which tests/unit/behaviours.txt names. Each source has a test of its name, or
# that table names it.
import os
import re
import sys

import source

TABLE = "tests/unit/behaviours.txt"
TEST = re.compile(r"tests/unit/(\w+)/test_(\w+)\.c$")


def folder_of(path):
    """Whose tests a source's are: silo for grains/silo/a.c, sched for runtime/sched/x/a.c."""
    parts = path.split("/")
    if parts[:2] in (["grains", "silo"], ["grains", "testing"]):
        return parts[1]
    return parts[1] if parts[0] == "runtime" else parts[0]


def sources(root, *suffixes):
    """{(folder, name): path} of the product's files that end in one of suffixes."""
    return {(folder_of(path), os.path.splitext(os.path.basename(path))[0]): path
            for path in source.files(root, *suffixes)
            if path.startswith(("runtime/", "grains/", "codegen/"))}


def rows(root):
    """{test: (line, its sources)}; a row is `FOLDER/test_NAME.c: behaviour: FOLDER/NAME, ...`."""
    found = {}
    if os.path.exists(os.path.join(root, TABLE)):
        for line, row in enumerate(source.read(root, TABLE).splitlines(), 1):
            fields = row.split(": ")
            if row and not row.startswith("#"):
                found["tests/unit/" + fields[0]] = (line, fields[-1].split(", "))
    return found


def main(root):
    report = source.Report()
    known, table = sources(root, ".c", ".h", ".S"), rows(root)
    tests = [path for path in source.files(root, ".c") if TEST.match(path)]
    mirrored = {TEST.match(path).groups() for path in tests}
    named = {tuple(name.split("/")) for _, names in table.values() for name in names}
    for path in tests:
        if TEST.match(path).groups() not in known and path not in table:
            report.say(path, 1, "mirrors no source; name the behaviour in " + TABLE)
    for path, (line, names) in table.items():
        if path not in tests:
            report.say(TABLE, line, "there is no " + path)
        for name in names:
            if tuple(name.split("/")) not in known:
                report.say(TABLE, line, "there is no source " + name)
        if path in tests and TEST.match(path).groups() in known and any(
                tuple(name.split("/")) in mirrored for name in names):
            report.say(TABLE, line, "%s mirrors a source: its row names only sources without a "
                       "test of their name" % path)
    for pair, path in sorted(sources(root, ".c", ".S").items()):
        if pair not in mirrored and pair not in named:
            report.say(path, 1, "has no test of its name, and no row of " + TABLE)
    report.end("mirror")


if __name__ == "__main__":
    main(sys.argv[1])
