# format.py ROOT - every C file is as clang-format writes it (`format.py ROOT fix` writes it so).
import subprocess
import sys

import source


def main(root, fix):
    report = source.Report()
    paths = source.files(root, ".c", ".h")
    if fix:
        subprocess.run(["clang-format", "-i"] + paths, cwd=root, check=True)
    else:
        done = subprocess.run(["clang-format", "--dry-run"] + paths, cwd=root, check=True,
                              stderr=subprocess.PIPE, text=True)
        for line in done.stderr.splitlines():
            if "clang-format-violations" in line:
                path, number = line.split(":")[:2]
                report.say(path, int(number), "clang-format would change this")
    report.end("format")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["fix"])
