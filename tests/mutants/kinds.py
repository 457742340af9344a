# kinds.py - the kinds of change that a drawn mutant makes, and the places where each can be made.
#
# Only bodies of functions are changed. Each kind changes what the code does nearly everywhere, and
# compiles nearly everywhere: `<` for `<=` and other numbers than 0 and 1 are not among them, since
# most limits here are budgets and sizes of caches, where one more or less is as good. Those that
# are not have a row in named.py.
import collections
import re

import source

# text[begin:end] becomes `new`.
Mutant = collections.namedtuple("Mutant", "path line kind begin end old new")

# Calls without an effect that one run of a test could see: checks for bugs of the runtime itself,
# hints to the processor, the compiler and sanitizers, locks (`make tsan` finds one that is missing;
# zeroed memory is one), and what only frees memory (`make asan` finds leaks).
FREES = r"(?!free\(|\w+_(?:free|fini|drop|destroy)\()"
NO_EFFECT = FREES + (r"(?!(?:teffi_bug_if|assert|teffi_cpu_relax|__builtin_prefetch|"
                     r"atomic_signal_fence|teffi_san_\w+|"
                     r"pthread_(?:mutex|cond)_init|pthread_mutex_lock|teffi_spinlock_lock)\()")
CALL = re.compile(r"^ +(?:\(void\))?(?!return\b|if\b|while\b|for\b|switch\b|sizeof\b|do\b|else\b)"
                  + NO_EFFECT + r"(\w[\w.\->]*\([^;{}]*\)); *$", re.MULTILINE)
ASSIGNMENT = re.compile(r"^ +(\*?\w[\w.\->\[\]]* [-+*/|&]?= [^;{}]+); *$", re.MULTILINE)
IF = re.compile(r"\bif \(")
BOTH, EITHER = re.compile(r" && "), re.compile(r" \|\| ")
SIGN = re.compile(r"(?<=[\w)\]] )([-+])(?= [\w(])")
ZERO_ONE = re.compile(r"(?<=[ (])[01](?=[;,) ])")
TRUTH = re.compile(r"\breturn (true|false);")
VOID = re.compile(r"^(?:static (?:inline )?)?void " + FREES + r"\w+\([^;{}]*\)\n\{\n(?= )",
                  re.MULTILINE)


def blanked(text):
    """The same text, with blanks for comments and strings."""
    return source.TOKEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def bodies(code):
    """(begin, end) of each function's body: '{' and '}' stand alone in the first column."""
    return [match.span() for match in re.finditer(r"^\{\n.*?^\}\n", code, re.MULTILINE | re.DOTALL)]


def closing(code, begin):
    """The place of the ')' that closes the '(' at begin."""
    depth = 0
    for at in range(begin, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if not depth:
            return at
    return -1


def negated(code):
    for match in IF.finditer(code):
        begin = match.end() - 1
        end = closing(code, begin) + 1
        yield begin, end, lambda old: "(!%s)" % old


def dropped(pattern):
    def places(code):
        for match in pattern.finditer(code):
            yield match.start(1), match.end(1), lambda old: "(void)0"
    return places


def replaced(pattern, new):
    def places(code):
        for match in pattern.finditer(code):
            yield match.start(), match.end(), new
    return places


def returned_early(code):
    for match in VOID.finditer(code):
        yield match.end(), match.end(), lambda old: "    return;\n"


KINDS = {
    "negated condition": negated,
    "&& becomes ||": replaced(BOTH, lambda old: " || "),
    "|| becomes &&": replaced(EITHER, lambda old: " && "),
    "sign swapped": replaced(SIGN, lambda old: "-" if old == "+" else "+"),
    "call dropped": dropped(CALL),
    "assignment dropped": dropped(ASSIGNMENT),
    "truth swapped": replaced(TRUTH, lambda old: old.replace("true", "-").replace("false", "true")
                              .replace("-", "false")),
    "0 becomes 1 or 1 becomes 0": replaced(ZERO_ONE, lambda old: str(1 - int(old))),
    "returns at once": returned_early,
}


def places(path, text):
    """Every mutant of one source, by kind."""
    code = blanked(text)
    inside = bodies(code)
    found = {kind: [] for kind in KINDS}
    for kind, of_kind in KINDS.items():
        for begin, end, new in of_kind(code):
            if any(b < begin < e for b, e in inside):
                found[kind].append(Mutant(path, source.line_of(text, begin), kind, begin, end,
                                          text[begin:end], new(text[begin:end])))
    return found


def planted(text, mutant):
    return text[:mutant.begin] + mutant.new + text[mutant.end:]


# A bare `return true;` or the head of a body says little without the line before it.
LINES_BEFORE = {"truth swapped": 1, "returns at once": 2}


def lines_of(text, mutant):
    """The lines that change, before and after, each squeezed into one line."""
    end = text.find("\n", mutant.end)
    begin = text.rfind("\n", 0, mutant.begin) + 1
    for _ in range(LINES_BEFORE.get(mutant.kind, 0)):
        begin = text.rfind("\n", 0, begin - 1) + 1
    return (" ".join(text[begin:end].split()),
            " ".join((text[begin:mutant.begin] + mutant.new + text[mutant.end:end]).split()))
