# style.py ROOT - what formatting cannot see: headers, lengths, names, words that must not be there.
import os
import re
import sys

import source

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# Paths that are somebody's own.
MACHINE = re.compile(r"(?<![\w.$}])/(home|root|Users|mnt|media|opt|srv|work\w*|tmp)/[\w.-]+")
# Documents that a reader of the repository cannot open.
ELSEWHERE = re.compile(r"\b(DESIGN|ORLEANS|PEERS|DEPS|RELIABILITY|PERF|STYLE)\b"
                       r"(\.md| sections?\b| \d)|[Ss]eed document")
EXPORTED = re.compile(r"^TEFF_API\s[^;]*?(\w+)\s*\(", re.MULTILINE)
SHARED = re.compile(r"^(?!static|typedef|#|struct|enum|union|\})[A-Za-z][\w \t*]*?\b(\w+)\s*"
                    r"\([^;{]*\)[^;{=]*;", re.MULTILINE)
HIDDEN_PREFIXES = ("teffi_", "teff_", "link_", "conn_", "sim_")


def check_lines(report, path, text):
    lines = text.split("\n")
    if len(lines) - 1 > FILE_LINES_MAX:
        report.say(path, 1, "%d lines; at most %d" % (len(lines) - 1, FILE_LINES_MAX))
    if text and not text.endswith("\n"):
        report.say(path, len(lines), "no newline at the end")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            report.say(path, number, "%d columns; at most %d" % (len(line), COLUMNS_MAX))
        if "\t" in line:
            report.say(path, number, "a tab")
        if line != line.rstrip():
            report.say(path, number, "blanks at the end")


def check_words(report, path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in ((UNFINISHED, "unfinished"), (MACHINE, "a path of one machine"),
                              (ELSEWHERE, "a document that is not here")):
            match = pattern.search(line)
            if match:
                report.say(path, number, "%s: %s" % (what, match.group()))


def check_header(report, path, text):
    name = os.path.basename(path)
    if path.endswith((".c", ".h", ".S")):
        wanted, found = "/* %s - " % name, text.startswith("/* %s - " % name)
    elif path.endswith(".proto"):
        wanted, found = "// ...", text.startswith("//") or path.startswith(("samples/", "tests/"))
    else:
        head = text.split("\n", 1)[1] if text.startswith("#!") else text
        wanted, found = "# ...", head.startswith("# ")
    if not found:
        report.say(path, 1, "begins without '%s'" % wanted)


def check_functions(report, path, text):
    """A function's body is between '{' and '}', each alone on its line: the format sees to that."""
    begin = None
    for number, line in enumerate(text.split("\n"), 1):
        if line == "{":
            begin = number
        elif line == "}" and begin:
            if number - begin - 1 > FUNCTION_LINES_MAX:
                report.say(path, begin, "a function of %d lines; at most %d"
                           % (number - begin - 1, FUNCTION_LINES_MAX))
            begin = None


def check_names(report, path, text):
    text = source.code(text)
    if path.startswith("runtime/include/"):
        for match in EXPORTED.finditer(text):
            if not re.match(r"teff_[a-z]", match.group(1)):
                report.say(path, source.line_of(text, match.start()),
                           "exported without teff_: %s" % match.group(1))
    elif path.startswith(("runtime/", "grains/")):
        for match in SHARED.finditer(text):
            if not match.group(1).startswith(HIDDEN_PREFIXES):
                report.say(path, source.line_of(text, match.start()),
                           "shared without teffi_: %s" % match.group(1))


def main(root):
    report = source.Report()
    for path in source.files(root, ".c", ".h", ".S", ".py", ".sh", ".proto"):
        text = source.read(root, path)
        check_header(report, path, text)
        check_lines(report, path, text)
        if not path.startswith("tests/lint/"): # they name what they look for
            check_words(report, path, text)
        if path.endswith(".c"):
            check_functions(report, path, text)
        if path.endswith(".h"):
            check_names(report, path, text)
    for path in source.files(root, ".md", "meson.build", ".ini"):
        check_words(report, path, source.read(root, path))
    report.end("style")


if __name__ == "__main__":
    main(sys.argv[1])
