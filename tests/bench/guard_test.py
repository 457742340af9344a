# guard_test.py - does the guard see what it must? A mutant that does a tenth more, doctored
# baselines, another compiler, an operation that is gone.
# usage: guard_test.py BUILD, the folder with `guard` and `guard_mutant`
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
OPERATION = "frame-encode"


class Guard:
    def __init__(self, build, folder):
        self.build, self.baseline = build, os.path.join(folder, "baseline.json")

    def run(self, *args, strict=True, env=None):
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "guard.py"), self.build,
                               *args, *["--strict"] * strict, "--baseline", self.baseline],
                              capture_output=True, text=True, env=env)
        return done.returncode, done.stdout, done.stderr

    def mutant(self, operation):
        return self.run(operation, "--program", os.path.join(self.build, "guard_mutant"))

    def read(self):
        with open(self.baseline) as file:
            return json.load(file)

    def write(self, content):
        with open(self.baseline, "w") as file:
            json.dump(content, file)


def check(what, holds, *seen):
    if not holds:
        sys.exit("guard_test: FAILED: %s\n%s" % (what, "\n".join(map(str, seen))))
    print("guard_test: ok: " + what)


def mutant_is_found(guard):
    status, out, err = guard.run(OPERATION)
    check("the same build passes", status == 0 and '"guard/frame-encode"' in out, out, err)
    growth = json.loads(out)["growth_percent"]
    check("twice the same count, within 1 %", abs(growth) < 1, growth)
    status, out, err = guard.mutant(OPERATION)
    growth = json.loads(out)["growth_percent"]
    check("a tenth more work fails", status == 1 and 7 < growth < 15, status, out, err)
    check("the message says which, by how much, and what to do",
          "FAILED: frame-encode: " in err and "%.1f %% more" % growth in err
          and "make bench BENCH=guard ARGS=--renew" in err, err)


def doctored(guard, by):
    content = guard.read()
    content["instructions"][OPERATION] *= by
    guard.write(content)
    result = guard.run(OPERATION)
    content["instructions"][OPERATION] /= by
    guard.write(content)
    return result


def baselines_count(guard):
    check("4 % more than the baseline passes", doctored(guard, 1 / 1.04)[0] == 0)
    check("6 % more than the baseline fails", doctored(guard, 1 / 1.06)[0] == 1)
    status, _, err = doctored(guard, 1.1)
    check("9 % less passes and is said", status == 0 and "less than the baseline" in err, err)
    status, _, err = guard.run("frame-decode")
    check("what is not in the baseline fails", status == 1 and "not in the baseline" in err, err)
    status, _, err = guard.run("no-such")
    check("an unknown operation fails", status == 1 and "no operation no-such" in err, err)


def another_patch(version):
    return re.match(r"\D*\d+\.\d+", version).group() + ".99-1+deb12u9"


def others_are_not_compared(guard, folder):
    content = guard.read()
    about = content["about"]
    guard.write(dict(content, about=dict(about, compiler="1.2.3")))
    status, _, err = guard.run(OPERATION)
    check("another compiler fails, with a word",
          status == 77 and "NOTHING IS GUARDED" in err and "compiler 1.2.3" in err, status, err)
    status, _, err = guard.run(OPERATION, strict=False)
    check("but where nobody insists it is skipped, with a word",
          status == 0 and "NOTHING IS GUARDED" in err and "compiler 1.2.3" in err, status, err)
    guard.write(dict(content, about=dict(about, compiler=another_patch(about["compiler"]),
                                         libc=another_patch(about["libc"]))))
    status, out, err = guard.run(OPERATION)
    check("an update of the same compiler and C library is compared",
          status == 0 and '"guard/frame-encode"' in out, status, err)
    guard.write(content)
    empty = os.path.join(folder, "empty")
    os.mkdir(empty)
    status, _, err = guard.run(OPERATION, env=dict(os.environ, PATH=empty))
    check("no valgrind fails, with a word",
          status == 77 and "valgrind is not installed" in err, status, err)


def main(build):
    if not shutil.which("valgrind"):
        print("guard_test: skipped: valgrind is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        guard = Guard(build, folder)
        status, _, err = guard.run(OPERATION, "--renew")
        check("a baseline is written", status == 0 and OPERATION in guard.read()["instructions"],
              err)
        mutant_is_found(guard)
        baselines_count(guard)
        others_are_not_compared(guard, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
