# growth.py - what a call costs as grains, silos, callers and payloads grow: a JSON object a line.
# usage: growth.py BUILD [SERIES] [--quick] [--plot[=FOLDER]]
#   BUILD: the folder with the program `growth`; SERIES: grains, silos, callers or payload.
#   --plot writes SVGs by gnuplot, and growth.md with the tables, to FOLDER (plots/ here).
# Each value is the median over windows of 0.2 s; passes over a series' programs take turns. Beside
# the wall's time a line has the processors' (cpu_ns), which busy neighbours disturb less.
import argparse
import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PASSES = 3
BYTES_GUESS = 256  # of a grain, where there are too few to see
TIMEOUT_SECONDS = 400
GRAINS_MAX, GRAINS_QUICK = 10000000, 100000
SILOS, SILOS_QUICK = range(1, 9), (1, 2)
# A caller has a stack while it waits; there are 100,000, and who is called needs one too.
CALLERS, CALLERS_QUICK = (1, 10, 100, 1000, 10000, 90000), (1, 1000)
# A message takes 1 MiB: four bytes of it say where the payload is.
PAYLOADS = (0, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, (1 << 20) - 4)
PAYLOADS_QUICK = (0, 64 << 10)
TRANSPORTS = ("nng", "reactor")
PLACES = (("local", 1), ("remote", 1), ("remote", 16))

Point = collections.namedtuple("Point", "series x windows")  # windows: of dicts of numbers


class Failed(Exception):
    pass


def run(build, *args):
    """The windows that a program saw: {(what, x): [numbers]}."""
    done = subprocess.run([os.path.join(build, "growth"), *map(str, args)], capture_output=True,
                          text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        raise Failed("growth %s ends with %d" % (" ".join(map(str, args)), done.returncode))
    found = {}
    for line in done.stdout.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        key = fields.pop("what"), int(fields.pop("x"))
        found.setdefault(key, []).append({k: float(v) for k, v in fields.items()})
    return found


def passes(build, series, commands, quick):
    """Points of a series, one for each command, from several runs of each."""
    windows = {command: [] for command in commands}
    for _ in range(1 if quick else PASSES):
        for command in commands:
            for found in run(build, *command).values():
                windows[command] += found
    return [Point(series, command, windows[command]) for command in commands]


def of_windows(windows, what):
    calls = [w for w in windows if w["calls"] > 0]
    if not calls:
        raise Failed("no call ended in any window")
    return [w[what] * 1e9 / w["calls"] for w in calls]


def rounded(value):
    return float("%.4g" % value)


def line(series, parameters, windows, base=None, **more):
    """One JSON object. in: base: the windows that it is compared with."""
    wall, cpu = of_windows(windows, "seconds"), of_windows(windows, "cpu_seconds")
    out = {"name": "growth/" + series, "parameters": parameters, "unit": "ns/call",
           "median": rounded(statistics.median(wall)), "min": rounded(min(wall)),
           "max": rounded(max(wall)), "runs": len(wall),
           "cpu_ns": rounded(statistics.median(cpu))}
    if base:
        out["ratio"] = rounded(statistics.median(wall) /
                               statistics.median(of_windows(base, "seconds")))
        out["cpu_ratio"] = rounded(statistics.median(cpu) /
                                   statistics.median(of_windows(base, "cpu_seconds")))
    out.update(more)
    print(json.dumps(out), flush=True)
    return out


def read_ns(build, size):
    """A read of so much memory whose place is known from the read before."""
    (windows,) = run(build, "memory", int(size)).values()
    return rounded(statistics.median(of_windows(windows, "seconds")))


def grains(build, quick):
    """Calls of random ones of so many, and of a thousand of them in turn with that."""
    found = {}
    for _ in range(1 if quick else PASSES):
        for key, windows in run(build, "grains", GRAINS_QUICK if quick else GRAINS_MAX).items():
            found.setdefault(key, []).extend(windows)
    lines = []
    for (what, x), windows in sorted(found.items()):
        if what != "grains":
            continue
        each = rounded(statistics.median(w["bytes"] for w in windows)) or None
        lines.append(line("grains", {"grains": x, "callers": 1}, windows, base=found["few", x],
                          bytes_per_grain=each,
                          read_ns=read_ns(build, x * (each or BYTES_GUESS))))
    return lines


def silos(build, quick):
    """64 callers in all, and 64 for each silo: links that have one call under way, or many."""
    numbers = SILOS_QUICK if quick else SILOS
    loads = [(n, 64) for n in numbers] + [(n, 64 * n) for n in numbers[1:]]
    points = passes(build, "silos", [("silos", *load, transport) for transport in TRANSPORTS
                                     for load in loads], quick)
    return [line("silos", {"transport": p.x[3], "silos": p.x[1], "callers": p.x[2],
                           "grains": 10000}, p.windows, base=points[0].windows) for p in points]


def callers(build, quick):
    points = passes(build, "callers",
                    [("callers", n) for n in (CALLERS_QUICK if quick else CALLERS)], quick)
    return [line("callers", {"callers": p.x[1], "grains": 10000}, p.windows,
                 base=points[0].windows) for p in points]


def payload(build, quick):
    commands = [("payload", size, where, callers) for where, callers in PLACES
                for size in (PAYLOADS_QUICK if quick else PAYLOADS)]
    lines = []
    for point in passes(build, "payload", commands, quick):
        _, size, where, callers = point.x
        seconds = statistics.median(of_windows(point.windows, "seconds")) / 1e9
        lines.append(line("payload", {"bytes": size, "where": where, "callers": callers},
                          point.windows, gigabytes_per_second=rounded(size / seconds / 1e9)))
    return lines


SERIES = {"grains": grains, "silos": silos, "callers": callers, "payload": payload}

# ---- plots and tables ----

PLOT = """set terminal svg size 760,440 font "sans-serif,13" background "white"
set output "%(file)s"
set title "%(title)s"
set xlabel "%(xlabel)s"
set ylabel "%(ylabel)s"
set grid xtics ytics lc rgb "#dddddd"
set key %(key)s
%(more)s
plot %(plots)s
"""
COLOURS = ("#1f5fa8", "#c44e1c", "#2e8b57", "#7a4fa3")


def gnuplot(path, title, axes, curves, more="", key="top left"):
    """in: curves: (label, [(x, y)]); axes: (xlabel, ylabel)."""
    blocks = ""
    plots = []
    for i, (label, points) in enumerate(curves):
        blocks += "$d%d << END\n%s\nEND\n" % (i, "\n".join("%g %g" % p for p in points))
        plots.append('$d%d with linespoints lw 2 pt 7 ps 0.6 lc rgb "%s" title "%s"'
                     % (i, COLOURS[i], label))
    script = blocks + PLOT % {"file": path, "title": title, "xlabel": axes[0], "ylabel": axes[1],
                              "more": more, "key": key, "plots": ", ".join(plots)}
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def curve(lines, key, value):
    return [(one["parameters"][key], one[value]) for one in lines]


def plot_grains(path, lines):
    gnuplot(path, "A call to a random one of so many grains, one caller",
            ("grains", "ns a call"),
            [("clock", curve(lines, "grains", "median")),
             ("processor time", curve(lines, "grains", "cpu_ns")),
             ("one read of as much memory", curve(lines, "grains", "read_ns"))],
            'set logscale x\nset format x "10^{%T}"\nset yrange [0:*]')


def plot_silos(path, lines):
    curves = []
    for transport in TRANSPORTS:
        ours = [one for one in lines if one["parameters"]["transport"] == transport]
        few = [one for one in ours if one["parameters"]["callers"] == 64]
        many = [one for one in ours
                if one["parameters"]["callers"] == 64 * one["parameters"]["silos"]]
        curves += [(transport + ", 64 callers", curve(few, "silos", "median")),
                   (transport + ", 64 a silo", curve(many, "silos", "median"))]
    gnuplot(path, "Calls to 10,000 grains spread over silos, each a process, on two cores",
            ("silos", "ns a call"), curves, "set xtics 1\nset xrange [0.5:8.5]\nset logscale y")


def plot_callers(path, lines):
    gnuplot(path, "Calls to 10,000 grains of one silo, by how many callers",
            ("callers", "ns a call"),
            [("clock", curve(lines, "callers", "median")),
             ("processor time", curve(lines, "callers", "cpu_ns"))],
            'set logscale x\nset format x "10^{%T}"\nset yrange [0:*]')


def plot_payload(path, lines):
    curves = []
    for where, callers in PLACES:
        of = [one for one in lines if one["parameters"]["where"] == where
              and one["parameters"]["callers"] == callers]
        label = "same silo" if where == "local" else "TCP, %d at once" % callers
        # A logarithm has no place for nothing: it stands at 16.
        curves.append((label, [(max(x, 16), y / 1000) for x, y in curve(of, "bytes", "median")]))
    gnuplot(path, "A call by the size of its request", ("bytes (0 is shown at 16)", "us a call"),
            curves, 'set logscale xy\nset xtics ("0" 16, "64" 64, "1 Ki" 1024, "4 Ki" 4096, '
            '"16 Ki" 16384, "64 Ki" 65536, "256 Ki" 262144, "1 Mi" 1048576)'
            '\nset xrange [10:2000000]')


PLOTS = {"grains": plot_grains, "silos": plot_silos, "callers": plot_callers,
         "payload": plot_payload}
COLUMNS = {
    "grains": ("grains", "bytes_per_grain", "median", "cpu_ns", "ratio", "cpu_ratio", "read_ns"),
    "silos": ("transport", "silos", "callers", "median", "cpu_ns", "ratio", "cpu_ratio"),
    "callers": ("callers", "median", "cpu_ns", "ratio", "cpu_ratio"),
    "payload": ("where", "callers", "bytes", "median", "cpu_ns", "gigabytes_per_second"),
}
TITLES = {"median": "ns a call", "cpu_ns": "processor ns a call",
          "bytes_per_grain": "bytes a grain",
          "read_ns": "ns a read of as much memory", "ratio": "ratio",
          "cpu_ratio": "ratio, processor", "gigabytes_per_second": "GB/s"}


def cell(value):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return "{:,}".format(int(value)) if value == int(value) else "%g" % value


def table(series, lines):
    columns = COLUMNS[series]
    rows = ["| " + " | ".join(TITLES.get(c, c) for c in columns) + " |",
            "|---" * len(columns) + "|"]
    for one in lines:
        values = dict(one, **one["parameters"])
        rows.append("| " + " | ".join(cell(values.get(c)) for c in columns) + " |")
    return "\n".join(rows) + "\n"


def plot(folder, measured):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "growth.md"), "w") as file:
        for series, lines in measured.items():
            file.write("### %s\n\n![%s](growth-%s.svg)\n\n%s\n"
                       % (series, series, series, table(series, lines)))
    if not shutil.which("gnuplot"):
        print("growth: no plots: gnuplot is not installed (gnuplot-nox)", file=sys.stderr)
        return
    for series, lines in measured.items():
        PLOTS[series](os.path.join(folder, "growth-%s.svg" % series), lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("series", nargs="?", default="", choices=("", *SERIES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plot", nargs="?", const=os.path.join(HERE, "plots"))
    args = parser.parse_args()
    try:
        measured = {series: measure(args.build, args.quick) for series, measure in SERIES.items()
                    if args.series in ("", series)}
        if args.plot:
            plot(args.plot, measured)
    except (Failed, subprocess.SubprocessError, OSError) as failure:
        print("growth: FAILED: %s" % failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
