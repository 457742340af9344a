# selftest.py - each kind of mutant is planted where it should be, and nowhere else; the rows of
# named.py, simulated.py and equivalent.txt still stand in the sources.
import sys

import mutants
from mutants import kinds, source

SAMPLE = """/* a.c - calls in comments stay (); also && and "if (x)". */
static void push(list *l, int n)
{
    if (n > 0 && l)
        l->sum = n + 2;
    teffi_bug_if(n < 0);
    free(l);
    int rest = l->sum;
    add(l, 1); /* add(l, 0); */
}

static bool is_full(list *l)
{
    return true;
}

static inline void clear(list *l)
{
    l->sum = 3;
}
"""

EXPECTED = {
    "negated condition": ["if (!(n > 0 && l))"],
    "&& becomes ||": ["if (n > 0 || l)"],
    "|| becomes &&": [],
    "sign swapped": ["l->sum = n - 2;"],
    "call dropped": ["(void)0; /* add(l, 0); */"],
    "assignment dropped": ["(void)0;", "(void)0;"],
    "truth swapped": ["{ return false;"],
    "0 becomes 1 or 1 becomes 0": [
        "if (n > 1 && l)", "teffi_bug_if(n < 1);", "add(l, 0); /* add(l, 0); */"],
    "returns at once": ["static void push(list *l, int n) { return; if (n > 0 && l)",
                        "static inline void clear(list *l) { return; l->sum = 3;"],
}


def check_kinds():
    for kind, found in kinds.places("a.c", SAMPLE).items():
        after = [kinds.lines_of(SAMPLE, mutant)[1] for mutant in found]
        if after != EXPECTED[kind]:
            yield "%s: %s" % (kind, after)


def check_equivalent():
    rows = mutants.read_equivalent()
    for path in sorted({row[0] for row in rows}):
        text = source.read(mutants.ROOT, path)
        lines = {kinds.lines_of(text, mutant) for found in kinds.places(path, text).values()
                 for mutant in found}
        for row in rows:
            if row[0] == path and row[1:] not in lines:
                yield "equivalent.txt: %s no longer has: %s" % (path, row[1])


def main():
    tables = (mutants.named.NAMED, mutants.simulated.SIMULATED)
    # ends with a message when one is gone
    named = sum(len(list(mutants.named_mutants(mutants.ROOT, table))) for table in tables)
    wrong = list(check_kinds()) + list(check_equivalent())
    print("\n".join(wrong + ["mutants: %d named, %d wrong" % (named, len(wrong))]))
    return 1 if wrong else 0


sys.exit(main())
