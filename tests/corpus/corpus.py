# corpus.py PROGRAM SOURCE [update] - what silos exchange and store, kept for ever.
#
# kept/NAME.N.hex are the bytes of the N-th encoding that a kind has had, kept/NAME.N.txt what they
# say. Each must decode to its text and encode to its bytes, by this build and each later one. Each
# kind in the sources must have one that says what this build writes. update adds a file for each
# kind that has none yet, or whose encoding has new fields; it changes no file.
import os
import re
import subprocess
import sys

PROGRAM, SOURCE = sys.argv[1:3]
KEPT = os.path.join(SOURCE, "tests", "corpus", "kept")


def run(mode, name, data=b""):
    done = subprocess.run([PROGRAM, mode, name], input=data, capture_output=True)
    if done.returncode:
        sys.exit(f"{name}: {mode}: {done.stderr.decode().strip()}")
    return done.stdout


def read(path):
    with open(os.path.join(KEPT, path), encoding="ascii") as file:
        return file.read()


def source(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


# The kinds that the sources name.
def kinds():
    found = {"frame." + kind for kind in re.findall(
        r"^    TEFFI_FRAME_(\w+) = (?:1[6-9]|2\d),", source("runtime/message/frame.h"), re.M)}
    found |= {"frame." + kind for kind in re.findall(
        r"TEFFI_MSG_(\w+) = \d", re.search(r"enum \{ TEFFI_MSG_REQUEST.*item\.kind",
                                           source("runtime/message/msg.h")).group())}
    for package in ("cluster", "wire", "answer", "transaction"):
        found |= {f"{package}.{name}" for name in re.findall(
            r"^message (\w+)", source(f"proto/teff/{package}.proto"), re.M)}
    return found


def to_hex(data):
    return "".join(data[i:i + 32].hex() + "\n" for i in range(0, len(data), 32))


def keep(name, number, data):
    for end, text in (("hex", to_hex(data)), ("txt", run("show", name, data).decode())):
        with open(os.path.join(KEPT, f"{name}.{number}.{end}"), "x", encoding="ascii") as file:
            file.write(text)


def main():
    kept = {}
    for path in sorted(os.listdir(KEPT)):
        name, number, end = path.rsplit(".", 2)
        if end == "hex":
            kept.setdefault(name, {})[int(number)] = bytes.fromhex(read(path))
    for name, versions in kept.items():
        for number, data in versions.items():
            text = run("show", name, data).decode()
            assert text == read(f"{name}.{number}.txt"), f"{name}.{number} says now:\n{text}"
            assert run("again", name, data) == data, f"{name}.{number} encodes to other bytes"
    assert kept.keys() <= kinds(), f"no kinds any more: {kept.keys() - kinds()}"
    for name in sorted(kinds()):
        made = run("make", name)
        if made in kept.get(name, {}).values():
            continue
        assert "update" in sys.argv, f"{name}: what this build writes is not kept; see README.md"
        keep(name, len(kept.get(name, {})) + 1, made)
    print(len(kinds()), "kinds,", sum(len(versions) for versions in kept.values()), "kept")


main()
