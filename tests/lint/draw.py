# draw.py ROOT [SEED] - twenty functions with their comments, and five passages of pages, to be read
# with nothing but CONTRIBUTING.md beside them: is each comment understood at the first reading,
# does each name say what the function does? Prints its seed; a seed draws the same again.
import os
import random
import re
import sys

import source

FUNCTIONS, PASSAGES, PASSAGE_LINES = 20, 5, 40
PRODUCT = ("runtime/", "grains/", "codegen/")
FUNCTION = re.compile(r"(?:^/\*(?:[^*]|\*(?!/))*\*/\n)?"                # its comment
                      r"^[A-Za-z_][^\n;{}=]*\([^;{}]*\)\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)


def draw_functions(root, chance):
    found = []
    for path in source.files(root, ".c", ".h"):
        if path.startswith(PRODUCT):
            text = source.read(root, path)
            found += [(path, source.line_of(text, m.start()), m.group()) for m in
                      FUNCTION.finditer(text)]
    return chance.sample(sorted(found), FUNCTIONS)


def draw_passages(root, chance):
    pages = [path for path in source.files(root, ".md") if not path.startswith("tests/")]
    for path in chance.sample(sorted(pages), k=PASSAGES):
        lines = source.read(root, path).splitlines()
        first = chance.randrange(max(1, len(lines) - PASSAGE_LINES))
        yield path, first + 1, "\n".join(lines[first:first + PASSAGE_LINES]) + "\n"


def main(root, seed):
    chance = random.Random(seed)
    print("draw: seed %d" % seed)
    for path, line, text in draw_functions(root, chance) + list(draw_passages(root, chance)):
        print("==== %s:%d\n%s" % (path, line, text))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else
         int.from_bytes(os.urandom(4), "little"))
