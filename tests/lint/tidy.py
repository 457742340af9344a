# tidy.py ROOT BUILD - clang-tidy over the product; BUILD (made with clang) knows the flags.
import json
import multiprocessing.pool
import os
import re
import subprocess
import sys

import source

# Tests have the compilers and the sanitizers, generated code its generator.
CHECKED = re.compile(r"(runtime|grains|codegen|samples)/.*(?<!\.pb-c)(?<!\.teff)\.c$")


def commands(root, build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
            if CHECKED.match(path):
                yield path


def tidy(job):
    root, build, path = job
    done = subprocess.run(["clang-tidy", "--quiet", "-p", build, path], cwd=root,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode and not done.stdout: # it could not even begin
        return path, done.stderr
    return path, done.stdout


def main(root, build):
    report = source.Report()
    build = os.path.abspath(build)
    jobs = [(root, build, path) for path in sorted(set(commands(root, build)))]
    with multiprocessing.pool.ThreadPool(os.cpu_count()) as pool:
        for path, said in pool.imap(tidy, jobs):
            found = re.findall(r"(?:warning|error):", said)
            report.count += len(found) or bool(said.strip())
            sys.stdout.write(said)
    if not jobs:
        report.say(build, 1, "no sources: was it set up?")
    report.end("tidy (%d files)" % len(jobs))


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2])
