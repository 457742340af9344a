# source.py - the files of the project, and C text without its comments and strings.
import os
import re
import sys

SKIP = {".git", "__pycache__"}
GENERATED = re.compile(r"^tests/golden/.*\.teff\.[ch]$")


def files(root, *suffixes):
    """Paths below root, '/'-separated and sorted, that end in one of suffixes."""
    found = []
    for where, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in SKIP and not is_build(where, f)]
        for name in names:
            path = os.path.relpath(os.path.join(where, name), root)
            if name.endswith(suffixes) and not GENERATED.match(path):
                found.append(path)
    return sorted(found)


def is_build(where, folder):
    return os.path.exists(os.path.join(where, folder, "build.ninja"))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


def code(text):
    """C text with comments and the insides of strings blanked; lines stay where they are."""
    def blank(match):
        found = match.group()
        kept = found[0] + found[-1] if found[0] in "\"'" else ""
        return kept + "\n" * found.count("\n")
    return TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


class Report:
    """Counts what is wrong and says it, one line each."""

    def __init__(self):
        self.count = 0

    def say(self, path, line, what):
        print("%s:%d: %s" % (path, line, what))
        self.count += 1

    def end(self, name):
        print("%s: %s" % (name, "%d found" % self.count if self.count else "ok"))
        sys.exit(1 if self.count else 0)
