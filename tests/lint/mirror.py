# mirror.py ROOT - each tests/unit/FOLDER/test_NAME.c tests FOLDER's source NAME, or a behaviour of
# several sources, which tests/unit/behaviours.txt names.
import os
import re
import sys

import source

TABLE = "tests/unit/behaviours.txt"
TEST = re.compile(r"tests/unit/(\w+)/test_(\w+)\.c$")


def folder_of(path):
    """Whose tests a source's are: silo for grains/silo/a.c, sched for runtime/sched/x/a.c."""
    parts = path.split("/")
    if parts[:2] == ["grains", "silo"]:
        return "silo"
    return parts[1] if parts[0] == "runtime" else parts[0]


def sources(root):
    """{(folder, name)} of all sources and headers."""
    return {(folder_of(path), os.path.splitext(os.path.basename(path))[0])
            for path in source.files(root, ".c", ".h", ".S")
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
    known, table = sources(root), rows(root)
    tests = [path for path in source.files(root, ".c") if TEST.match(path)]
    for path in tests:
        mirrors = TEST.match(path).groups() in known
        if not mirrors and path not in table:
            report.say(path, 1, "mirrors no source; name the behaviour in " + TABLE)
        if mirrors and path in table:
            report.say(TABLE, table[path][0], "%s mirrors a source: no row is needed" % path)
    for path, (line, names) in table.items():
        if path not in tests:
            report.say(TABLE, line, "there is no " + path)
        for name in names:
            if tuple(name.split("/")) not in known:
                report.say(TABLE, line, "there is no source " + name)
    report.end("mirror")


if __name__ == "__main__":
    main(sys.argv[1])
