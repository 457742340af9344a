# pages.py ROOT - what pages name is there: README's table of options is that of args.c.
import re
import sys

import source

ARGS = "grains/silo/args.c"
PAGE = "README.md"
FLAG = re.compile(r"^    \{\"([\w-]+)\", (?:NULL|\")", re.MULTILINE)
ROW = re.compile(r"^\| `--.*", re.MULTILINE)


def check_options(root, report):
    """--help itself is not in the table."""
    flags = set(FLAG.findall(source.read(root, ARGS))) - {"help"}
    rows = [re.split(r"\s\|\s", row)[0] for row in ROW.findall(source.read(root, PAGE))]
    listed = set(re.findall(r"`--([\w-]+)", " ".join(rows)))
    for flag in sorted(flags - listed):
        report.say(PAGE, 1, "--%s of %s is in no table" % (flag, ARGS))
    for flag in sorted(listed - flags):
        report.say(PAGE, 1, "--%s is no option of %s" % (flag, ARGS))


def main(root):
    report = source.Report()
    check_options(root, report)
    report.end("pages")


if __name__ == "__main__":
    main(sys.argv[1])
