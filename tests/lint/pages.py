# pages.py ROOT - what pages name is there: README's table of options is that of args.c, which has
# each option of the scheduler; the files, functions, tests and samples of samples/IDEAS.md exist.
import os
import re
import sys

import source

ARGS = "grains/silo/args.c"
PAGE = "README.md"
FLAG = re.compile(r"^    \{\"([\w-]+)\", (?:NULL|\")", re.MULTILINE)
SCHED = "runtime/include/teff/sched.h"
STRUCT = re.compile(r"^typedef struct teff_sched_options \{(.*?)^\} teff_sched_options;",
                    re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
MEMBER = re.compile(r"(\w+)(?:\[[^;]*\])?;")
ROW = re.compile(r"^\| `--.*", re.MULTILINE)
IDEAS = "samples/IDEAS.md"
CELL = re.compile(r"`([\w./-]+)(?::(\w+))?`")


def check_options(root, report):
    """--help itself is not in the table."""
    flags = set(FLAG.findall(source.read(root, ARGS))) - {"help"}
    rows = [re.split(r"\s\|\s", row)[0] for row in ROW.findall(source.read(root, PAGE))]
    listed = set(re.findall(r"`--([\w-]+)", " ".join(rows)))
    for flag in sorted(flags - listed):
        report.say(PAGE, 1, "--%s of %s is in no table" % (flag, ARGS))
    for flag in sorted(listed - flags):
        report.say(PAGE, 1, "--%s is no option of %s" % (flag, ARGS))


def check_sched_options(root, report):
    """Each is a flag, but for the size and the functions."""
    struct = STRUCT.search(source.read(root, SCHED)).group(1)
    flags = source.read(root, ARGS)
    for member in MEMBER.findall(COMMENT.sub("", struct)):
        if member not in ("size", "hooks") and not re.search(r"AT\(sched\.%s\b" % member, flags):
            report.say(ARGS, 1, "no flag sets %s of teff_sched_options" % member)


def test_path(name):
    folder, _, test = name.partition("/")
    return name if "." in name else "tests/unit/%s/test_%s.c" % (folder, test)


def check_name(root, report, line, path, function):
    if not os.path.exists(os.path.join(root, path)):
        report.say(IDEAS, line, "there is no " + path)
    elif function and not re.search(r"\b%s\(" % function, source.read(root, path)):
        report.say(IDEAS, line, "%s has no function %s" % (path, function))


def check_ideas(root, report):
    """Rows: idea | code | test | sample."""
    for line, row in enumerate(source.read(root, IDEAS).splitlines(), 1):
        cells = row.split("|")
        if len(cells) != 6:
            continue
        for path, function in CELL.findall(cells[2]):
            check_name(root, report, line, path, function)
        for name, _ in CELL.findall(cells[3]):
            check_name(root, report, line, test_path(name), "")
        for name, _ in CELL.findall(cells[4]):
            check_name(root, report, line, "samples/" + name, "")


def main(root):
    report = source.Report()
    check_options(root, report)
    check_sched_options(root, report)
    check_ideas(root, report)
    report.end("pages")


if __name__ == "__main__":
    main(sys.argv[1])
