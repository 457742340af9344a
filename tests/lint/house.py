# house.py ROOT [list] - the shape of the product code: modules in call cycles, folders that call or
# include each other both ways, files in a folder. Fails where one of them is worse than its limit
# below. A module is NAME.c with NAME.h. It calls another if it names a function that the other
# defines. A folder and a folder inside it are two folders.
import os
import re
import sys

import source

# No worse than this: lower a limit when the code passes a lower one.
CYCLES_MAX = 0      # percent of the modules
CALLS_MAX = 0       # pairs of folders that call each other
INCLUDES_MAX = 0    # pairs of folders that include each other
FILES_MAX = 16      # C sources in a folder

# Folders with more files, and why.
LARGE = {}

DEFINED = re.compile(r"^(?!static (?!inline))(?:[A-Za-z_][\w ]*[ *])\**(teffi?_\w+)\([^;{]*\)\s*\{",
                     re.MULTILINE)
PROTOTYPE = re.compile(r"^(?!#)[A-Za-z_][\w *]*\([^;{}]*\)[^;{}]*;", re.MULTILINE)
MACRO = re.compile(r"^#define[ \t]+(TEFFI_\w+)\(", re.MULTILINE)
WORD = re.compile(r"\b(?:teffi?|TEFFI)_\w+\b")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
PRODUCT = ("runtime/", "grains/", "codegen/")
# Where the compiler looks for a header, after the folder of the source itself.
ROOTS = ("runtime/", "grains/", "codegen/", "runtime/include/")


def module_of(path):
    return os.path.splitext(path)[0]


def read_house(root):
    """out: the words that each module uses, and the module that defines each function."""
    words, home = {}, {}
    for path in source.files(root, ".c", ".h"):
        if not path.startswith(PRODUCT) or path.startswith("runtime/include/"):
            continue
        text = source.code(source.read(root, path))
        module = module_of(path)
        words.setdefault(module, set()).update(WORD.findall(PROTOTYPE.sub("", text)))
        for name in DEFINED.findall(text) + MACRO.findall(text):
            home[name] = module
    return words, home


def calls_of(words, home):
    """out: for each module, the others that it calls, and by which names."""
    calls = {}
    for module, used in words.items():
        others = calls.setdefault(module, {})
        for name in used:
            if home.get(name, module) != module:
                others.setdefault(home[name], []).append(name)
    return calls


def cycles_of(calls):
    """out: the strongly connected parts of two modules and more (Tarjan 1972), largest first."""
    index, low, stack, open_, parts = {}, {}, [], set(), []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        open_.add(module)
        for other in sorted(calls[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in open_:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            part = []
            while not part or part[-1] != module:
                part.append(stack.pop())
                open_.discard(part[-1])
            if len(part) > 1:
                parts.append(sorted(part))

    for module in sorted(calls):
        if module not in index:
            visit(module)
    return sorted(parts, key=len, reverse=True)


def includes_of(root):
    """out: for each source and header, the headers of the product that it includes."""
    product = [path for path in source.files(root, ".c", ".h", ".S") if path.startswith(PRODUCT)]
    known, includes = set(product), {}
    for path in product:
        own = os.path.dirname(path) + "/"
        for header in INCLUDE.findall(source.read(root, path)):
            places = [os.path.normpath(place + header) for place in (own,) + ROOTS]
            found = [place for place in places if place in known]
            if found:
                includes.setdefault(path, {})[found[0]] = ["#include"]
    return includes


def two_way_of(uses):
    """in: for each file, the others that it uses, and how. out: the pairs of folders whose files
    use each other in both directions."""
    ways = {}
    for path, others in uses.items():
        for other, names in others.items():
            way = (os.path.dirname(path), os.path.dirname(other))
            ways.setdefault(way, []).append("%s -> %s: %s" % (path, other, ", ".join(names)))
    return {way: found + ways[way[::-1]] for way, found in ways.items()
            if way[0] < way[1] and way[::-1] in ways}


def large_of(root):
    """out: the folders with more than FILES_MAX sources, and how many each has."""
    count = {}
    for path in source.files(root, ".c"):
        if path.startswith(PRODUCT):
            count[os.path.dirname(path)] = count.get(os.path.dirname(path), 0) + 1
    return {folder: n for folder, n in count.items() if n > FILES_MAX}


def main(root, list_all):
    sys.setrecursionlimit(10000)
    report = source.Report()
    words, home = read_house(root)
    calls = calls_of(words, home)
    parts, large = cycles_of(calls), large_of(root)
    pairs = {"call": (two_way_of(calls), CALLS_MAX),
             "include": (two_way_of(includes_of(root)), INCLUDES_MAX)}
    inside = sum(len(part) for part in parts)
    percent = 100.0 * inside / max(1, len(calls))
    print("house: %d of %d modules in call cycles (%.0f %%): %s" %
          (inside, len(calls), percent, " + ".join(str(len(part)) for part in parts) or "none"))
    for how, (found, _) in pairs.items():
        print("house: %d pairs of folders %s each other: %s" %
              (len(found), how, ", ".join("%s - %s" % pair for pair in sorted(found)) or "none"))
    print("house: folders with over %d sources: %s" %
          (FILES_MAX, ", ".join("%s %d" % item for item in sorted(large.items())) or "none"))
    if list_all:
        for part in parts:
            print("cycle: " + " ".join(part))
            for module in part:
                for other in sorted(set(calls[module]) & set(part)):
                    names = ", ".join(sorted(calls[module][other]))
                    print("  %s -> %s: %s" % (module, other, names))
        for found, _ in pairs.values():
            for pair, lines in sorted(found.items()):
                print("pair: %s - %s\n  " % pair + "\n  ".join(sorted(lines)))
    if percent > CYCLES_MAX:
        report.say("runtime", 1, "%.0f %% of the modules are in call cycles, at most %d %% may be" %
                   (percent, CYCLES_MAX))
    for how, (found, most) in pairs.items():
        if len(found) > most:
            report.say("runtime", 1, "%d pairs of folders %s each other, at most %d may" %
                       (len(found), how, most))
    for folder in sorted(set(large) - set(LARGE)):
        report.say(folder, 1, "%d sources, at most %d without a reason" %
                   (large[folder], FILES_MAX))
    report.end("house")


if __name__ == "__main__":
    main(sys.argv[1], len(sys.argv) > 2)
