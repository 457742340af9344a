# listed.py ROOT - every C source is named in a meson.build, so that nothing lies about unbuilt.
import os
import re
import sys

import source


def named(root):
    """Paths of sources: a quoted name is one in the folder of its meson.build."""
    found = set()
    for path in source.files(root, "meson.build"):
        text = re.sub(r"#[^\n]*", "", source.read(root, path))
        folder = os.path.dirname(path)
        for name in re.findall(r"'([^']*)'", text):
            found.add(os.path.normpath(os.path.join(folder, name)))
        found.update(spelled(text, folder))
    return found


def spelled(text, folder):
    """Names put together: 'test_' + name + '.c' with every quoted word of the file as a name."""
    words = re.findall(r"'([\w-]+)'", text)
    for prefix, suffix in re.findall(r"'([\w/]*)' \+ name \+ '([\w.]+)'", text):
        for word in words:
            yield os.path.normpath(os.path.join(folder, prefix + word + suffix))
    for suffix in re.findall(r"(?<!\+ )name \+ '([\w.]+)'", text):
        for word in words:
            yield os.path.normpath(os.path.join(folder, word + suffix))


def main(root):
    report = source.Report()
    known = named(root)
    for path in source.files(root, ".c", ".S"):
        if path not in known and not path.startswith("tests/install/"):
            report.say(path, 1, "no meson.build names it")
    report.end("listed")


if __name__ == "__main__":
    main(sys.argv[1])
