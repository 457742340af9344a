# check.py README SOURCE... - each example in C, C++ or proto of README is, line by line but for
# indentation, part of a source that is compiled.
import re
import sys

EXAMPLE = re.compile(r"^```(c|cpp|proto)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELLIPSIS = "..."


def lines(text):
    """Without indentation, empty lines, and the distance of a comment from its line."""
    return [re.sub(r"\s+", " ", line.strip()) for line in text.splitlines() if line.strip()]


def pieces(example):
    """What stands between lines of dots."""
    found = [[]]
    for line in lines(example):
        if line == ELLIPSIS:
            found.append([])
        else:
            found[-1].append(line)
    return [piece for piece in found if piece]


def is_part(piece, source):
    n = len(piece)
    return any(source[i:i + n] == piece for i in range(len(source) - n + 1))


def main(readme, paths):
    sources = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            sources.append(lines(file.read()))
    with open(readme, encoding="utf-8") as file:
        text = file.read()
    bad = 0
    for match in EXAMPLE.finditer(text):
        if not all(any(is_part(piece, source) for source in sources)
                   for piece in pieces(match.group(2))):
            print("%s:%d: this example is in no source that is compiled" %
                  (readme, text.count("\n", 0, match.start()) + 1))
            bad = 1
    if not EXAMPLE.search(text):
        print("%s: no examples" % readme)
        bad = 1
    sys.exit(bad)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
