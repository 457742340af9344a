# docs.py ROOT - each function of a public header has a docstring with all of its parts: in (unless
# it has no parameters), out (unless it returns nothing or only an error), runs, errs (where it
# returns a teff_err). Functions that stand together below one docstring share it.
import re
import sys

import source

FOLDER = "runtime/include/teff/"
FUNCTION = re.compile(r"^TEFF_API\s+((?:[\w*]+\s+)*?[\w]+[\s*]+)(teff_\w+)\(([^;]*?)\)[^;()]*"
                      r"(?:__attribute__\(\(.*?\)\))?;", re.MULTILINE | re.DOTALL)
DOCSTRING = re.compile(r"/\*(?:[^*]|\*(?!/))*\*/")
PART = re.compile(r"(?:^|[\s(.,])(in|out|runs|errs)(?=[:,])")


def needed(result, parameters):
    """The parts that a function's docstring needs."""
    parts = {"runs"}
    if parameters.strip() not in ("", "void"):
        parts.add("in")
    if "teff_err" in result.split():
        parts.add("errs")
    elif result.split() != ["void"]:
        parts.add("out")
    return parts


def docstring_of(text, start):
    """The comment before a declaration, or before those right above it."""
    found = None
    for match in DOCSTRING.finditer(text, 0, start):
        found = match
    if not found or re.search(r"\n\s*\n", text[found.end():start]):
        return ""
    return found.group(0)


def main(root):
    report = source.Report()
    for path in source.files(root, ".h"):
        if not path.startswith(FOLDER):
            continue
        text = source.read(root, path)
        for match in FUNCTION.finditer(text):
            result, name, parameters = match.groups()
            result = result.replace("TEFF_MUST_USE", "")
            said = set(PART.findall(docstring_of(text, match.start())))
            for part in sorted(needed(result, parameters) - said):
                report.say(path, source.line_of(text, match.start()),
                           "%s has no %s:" % (name, part))
    report.end("docs")


if __name__ == "__main__":
    main(sys.argv[1])
