# selftest.py [NAME...] - each lint lets a good tree pass and finds what is planted in it.
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

GOOD = {
    "runtime/base/a.h": "/* a.h - what a is. */\nint teffi_a(void);\n",
    "runtime/base/a.c": "/* a.c - what a does. */\n#include \"base/a.h\"\n\n"
                        "int teffi_a(void)\n{\n    return 1; /* not a time() */\n}\n",
    "runtime/sched/b.c": "/* b.c - what b does. */\n#include \"base/a.h\"\n\n"
                         "static const char b[] = \"open(\";\n\n"
                         "int teffi_b(void)\n{\n    return teffi_a();\n}\n",
    "runtime/sched/b.h": "/* b.h - what b is. */\n",
    "runtime/sched/report/r.h": "/* r.h - what r is. */\n#include \"sched/b.h\"\n",
    "codegen/c.h": "/* c.h - what c is. */\n#include \"emit/e.h\"\n",
    "codegen/emit/e.h": "/* e.h - what e is. */\n",
    "runtime/include/teff/a.h": "/* a.h - what a is. */\n\n"
                                "/* teff_a - a. out: one. runs: anywhere. */\n"
                                "TEFF_API int teff_a(void);\n",
    "grains/silo/args.c": "/* args.c - x. */\n\nstatic const silo_option options[] = {\n"
                          "    {\"store\", NULL, \"where\", AT(sched.slice_ms)},\n"
                          "    {\"help\", NULL, \"list\", HELP},\n};\n",
    "runtime/include/teff/sched.h": "/* sched.h - x. */\n\ntypedef struct teff_sched_options {\n"
                                    "    size_t size;\n    int slice_ms; /* x; */\n"
                                    "} teff_sched_options;\n",
    "README.md": "| `--store` | where |\n",
    "samples/IDEAS.md": "| a | `runtime/base/a.c:teffi_a` | `base/a` | `IDEAS.md` |\n",
    "grains/g.h": "/* g.h - what g is. */\n#include \"sched/b.h\"\n",
}
GOOD["tests/unit/base/test_a.c"] = "/* test_a.c - x. */\n"
GOOD["tests/unit/grains/test_both.c"] = "/* test_both.c - x. */\n"
GOOD["tests/unit/behaviours.txt"] = "grains/test_both.c: x: base/a, sched/b\n" \
    "base/test_a.c: x: silo/args\n"
GOOD["meson.build"] = "files('%s')\n" % "', '".join(path for path in GOOD if path.endswith(".c"))

LONG = "/* a.c - long. */\nvoid f(void)\n{\n" + "    ;\n" * 71 + "}\n"

# lint, file, its text, what must be said
PLANTED = [
    ("layers", "runtime/base/a.c", "#include \"sched/group.h\"\n", "sched is above base"),
    ("layers", "runtime/base/a.c", "#include <sched/group.h>\n", "sched is above base"),
    ("layers", "codegen/a.c", "#include <base/a.h>\n", "codegen sees only the public"),
    ("layers", "runtime/node/a.c", "#include \"grains/g.h\"\n", "grains is above node"),
    ("layers", "grains/silo/a.c", "#include \"tests/a.h\"\n", "in no folder"),
    ("layers", "runtime/base/a.c", "#include <teff/sched.h>\n", "group is above base"),
    ("layers", "runtime/base/a.c", "#include <teff/new.h>\n", "in no folder"),
    ("layers", "runtime/include/teff/log.h", "#include <teff/silo.h>\n", "silo is above base"),
    ("layers", "codegen/a.c", "#include \"base/a.h\"\n", "codegen sees only the public"),
    ("layers", "samples/a/a.c", "#include \"silo/silo.h\"\n", "samples sees only the public"),
    ("layers", "runtime/include/teff/a.h", "#include \"base/a.h\"\n", "a public header sees only"),
    ("seams", "runtime/base/a.c", "int t = time(NULL);\n", "time() goes past the platform (clock)"),
    ("seams", "grains/a.c", "void f(void) { usleep(1); }\n", "(sleep)"),
    ("seams", "grains/silo/a.c", "int x = rand ();\n", "(random)"),
    ("seams", "runtime/node/a.c", "int x = pthread_create(0);\n", "(thread)"),
    ("seams", "runtime/link/net.c", "int x = socket(1, 2, 3);\n", "(socket)"),
    ("seams", "runtime/store/store.c", "int x = open(\"a\", 1);\n", "(file)"),
    ("seams", "runtime/store/sqlite.c", "int x = socket(1, 2, 3);\n", "(socket)"),
    ("seams", "grains/silo/silo.c", "char *x = getenv(\"A\");\n", "(environment)"),
    ("seams", "grains/silo/silo.c", "#include <nng/nng.h>\n", "nng is the transport's"),
    ("style", "runtime/base/a.c", "int a;\n", "begins without"),
    ("style", "runtime/base/a.c", LONG, "a function of 71 lines"),
    ("style", "runtime/base/a.c", "/* a.c - x. */\n" * 801, "801 lines"),
    ("style", "runtime/base/a.c", "/* a.c - x. */\n\tint a;\n", "a tab"),
    ("style", "runtime/base/a.c", "/* a.c - x. */\nint a; \n", "blanks at the end"),
    ("style", "runtime/base/a.c", "/* a.c - x. */\nint a;", "no newline"),
    ("style", "runtime/base/a.c", "/* a.c - x. */\n/* " + "x" * 97 + "*/\n", "columns"),
    ("style", "runtime/base/a.c", "/* a.c - x. */\n/* TO" + "DO: b */\n", "unfinished"),
    ("style", "runtime/base/a.c", "/* a.c - x. */\nchar *a = \"/home" + "/a\";\n", "one machine"),
    ("style", "README.md", "see `/home" + "/me/a`\n", "one machine"),
    ("style", "runtime/base/a.c", "/* a.c - x. Source: DESIGN" + " section 3 */\n", "not here"),
    ("style", "runtime/base/a.h", "/* a.h - x. */\nint a_do(void);\n", "shared without teffi_"),
    ("style", "runtime/include/teff/a.h", "/* a.h - x. */\nTEFF_API int a_do(void);\n",
     "exported without teff_"),
    ("docs", "runtime/include/teff/a.h", "/* a.h - x. */\n\nTEFF_API void teff_a(void);\n",
     "teff_a has no runs"),
    ("docs", "runtime/include/teff/a.h",
     "/* a.h - x. */\n\n/* teff_a - a. runs: anywhere. */\nTEFF_API int teff_a(void);\n",
     "teff_a has no out"),
    ("docs", "runtime/include/teff/a.h",
     "/* a.h - x. */\n\n/* teff_a - a. runs: anywhere. */\nTEFF_API void teff_a(int n);\n",
     "teff_a has no in"),
    ("docs", "runtime/include/teff/a.h",
     "/* a.h - x. */\n\n/* teff_a - a. runs: anywhere. */\nTEFF_API teff_err teff_a(void);\n",
     "teff_a has no errs"),
    ("listed", "runtime/base/lost.c", "/* lost.c - x. */\n", "no meson.build names it"),
    ("mirror", "tests/unit/base/test_b.c", "/* test_b.c - x. */\n", "mirrors no source"),
    ("mirror", "tests/unit/sched/test_a.c", "/* test_a.c - x. */\n", "mirrors no source"),
    ("mirror", "tests/unit/behaviours.txt",
     "base/test_a.c: x: base/a\ngrains/test_both.c: x: sched/b, silo/args\n",
     "its row names only sources without"),
    ("mirror", "tests/unit/behaviours.txt",
     "base/test_c.c: x: base/a\ngrains/test_both.c: x: base/a\n", "there is no tests/unit"),
    ("mirror", "tests/unit/behaviours.txt", "grains/test_both.c: x: grains/b\n",
     "there is no source grains/b"),
    ("mirror", "runtime/base/lost.c", "/* lost.c - x. */\n", "has no test of its name"),
    ("mirror", "tests/unit/behaviours.txt", "grains/test_both.c: x: base/a, silo/args\n",
     "runtime/sched/b.c:1: has no test of its name"),
    ("house", "runtime/base/a.c", "int teffi_a(void)\n{\n    return teffi_b();\n}\n",
     "are in call cycles"),
    ("house", "runtime/sched/b.h", "#include \"sched/report/r.h\"\n",
     "runtime/sched - runtime/sched/report\n"),
    ("house", "runtime/base/a.h", "#include <teff/a.h>\n#include \"sched/b.h\"\n",
     "1 pairs of folders include each other, at most 0"),
    ("house", "codegen/emit/e.h", "#include \"c.h\"\n", "codegen - codegen/emit\n"),
    ("names", "runtime/base/a.c", "static int run(void)\n{\n    return 1;\n}\n", "one word"),
    ("pages", "README.md", "| `--stone` | where |\n", "--stone is no option of"),
    ("pages", "runtime/include/teff/sched.h", "typedef struct teff_sched_options {\n"
     "    int slice_ms, more[2];\n} teff_sched_options;\n", "no flag sets more of teff_sched_opt"),
    ("pages", "README.md", "none\n", "--store of grains/silo/args.c is in no table"),
    ("pages", "samples/IDEAS.md", "| a | `runtime/base/a.c:teffi_b` | | |\n",
     "no function teffi_b"),
    ("pages", "samples/IDEAS.md", "| a | `runtime/base/z.c` | | |\n", "no runtime/base/z.c"),
    ("pages", "samples/IDEAS.md", "| a | | `base/z` | |\n", "no tests/unit/base/test_z.c"),
    ("pages", "samples/IDEAS.md", "| a | | | `02-none` |\n", "no samples/02-none"),
    ("format", "runtime/base/a.c", "/* a.c - x. */\nint  a;\n", "clang-format would change"),
]


def write(root, path, text):
    whole = os.path.join(root, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "w", encoding="utf-8") as file:
        file.write(text)


def run(lint, planted):
    """Status and output of a lint over the good tree with some files on top."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in list(GOOD.items()) + planted:
            write(root, path, text)
        if lint == "format": # the one lint that needs the project's own file
            with open(os.path.join(HERE, "../../.clang-format"), encoding="utf-8") as file:
                write(root, ".clang-format", file.read())
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, lint + ".py"), root],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout


def main(names):
    wrong = 0
    for lint in names:
        status, said = run(lint, [])
        if status:
            print("selftest: %s finds something in a good tree:\n%s" % (lint, said))
            wrong += 1
    plants = [p for p in PLANTED if p[0] in names]
    for lint, path, text, expected in plants:
        status, said = run(lint, [(path, text)])
        if status != 1 or expected not in said:
            print("selftest: %s does not say '%s' of %s:\n%s" % (lint, expected, path, said))
            wrong += 1
    print("selftest: %d lints, %d planted, %d wrong" % (len(names), len(plants), wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:] or sorted({lint for lint, _, _, _ in PLANTED}))
