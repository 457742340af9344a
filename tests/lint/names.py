# names.py ROOT [list] - static functions can be searched for: a name has two words or more, and
# stands for one function in the whole product.
import re
import sys

import source

# No more than this: lower them when the code has fewer.
ONE_WORD_MAX, SHARED_MAX = 0, 0

PRODUCT = ("runtime/", "grains/", "codegen/")
ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)")
STATIC = re.compile(r"^\s*static\s[^;{}=()]*?(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)


def main(root, list_all):
    report = source.Report()
    homes = {}
    for path in source.files(root, ".c", ".h"):
        if path.startswith(PRODUCT):
            text = ATTRIBUTE.sub("", source.code(source.read(root, path)))
            for match in STATIC.finditer(text):
                place = (path, source.line_of(text, match.start(1)))
                homes.setdefault(match.group(1), []).append(place)
    one_word = [name for name in homes if "_" not in name and name != "main"]
    shared = [name for name in homes if len(homes[name]) > 1]
    print("names: %d static functions of one word, %d names in several files" %
          (len(one_word), len(shared)))
    for what, found, most in (("one word", one_word, ONE_WORD_MAX),
                              ("also elsewhere", shared, SHARED_MAX)):
        for name in sorted(found) if list_all or len(found) > most else []:
            for path, line in homes[name]:
                print("%s:%d: %s(): %s" % (path, line, name, what))
        if len(found) > most:
            report.say(PRODUCT[0], 1, "%d names, %s; at most %d" % (len(found), what, most))
    report.end("names")


if __name__ == "__main__":
    main(sys.argv[1], len(sys.argv) > 2)
