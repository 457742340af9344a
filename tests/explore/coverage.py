# coverage.py GCOV OBJECTS EXPLORER [ARGUMENT...] - fails when a function of runtime/group, sched,
# fork or process, or of runtime/link/conn/polling.c, ran in no schedule of the explorer. OBJECTS:
# the directory with its instrumented objects.
#
# A new function must be reached by a scene, or stand in UNREACHED with the reason why it cannot be.
# A name in UNREACHED that runs, or that no source has any more, is an error too.
import gzip
import json
import os
import subprocess
import sys
import tempfile

FOLDERS = ("runtime/group/", "runtime/sched/", "runtime/fork/", "runtime/process/",
           "runtime/link/conn/polling.c")

UNREACHED = {
    # A signal's handler: no signals come to virtual threads. The test of it is
    # tests/unit/sched/test_preempt.c.
    ("sched/preempt.c", "preempt_turn_on_interrupt"),
    # It ends the process. The test of it is tests/unit/grains/test_misuse.c.
    ("sched/worker.c", "teffi_abort_for_rule_broken_by_turn"),
    # It runs when a silo or a system of processes is made, before the scheduler. The test of it is
    # tests/unit/silo/test_options.c.
    ("sched/exec.c", "teffi_sched_options_check_and_copy"),
    # The watch of a silo's stop calls it, and a scene has no silo. The test of it is
    # tests/unit/cluster/test_stuck.c.
    ("sched/report.c", "teffi_sched_list_turns"),
    # They make a system with the real platform. The test of them is
    # tests/unit/process/test_process.c.
    ("process/system.c", "teff_process_system_new"),
    ("process/system.c", "make_executor"),
    # A thread gives back more free slots than a scene has. The test of it is
    # tests/unit/process/test_churn.c.
    ("process/pid.c", "get_slot_index_and_no_generation"),
    # Arithmetic of the monitor's thread alone, after trials of more items than a scene has. The
    # test of them is tests/unit/sched/test_contention.c.
    ("sched/policy/contention.c", "compute_gain"),
    ("sched/policy/contention.c", "average_and_remember_gain"),
}


def counters(objects):
    return [os.path.join(objects, name) for name in sorted(os.listdir(objects))
            if name.endswith(".gcda")]


def functions(gcov, objects):
    """{source: {function: how often it ran}}, of the sources in FOLDERS."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([gcov, "--json-format"] + counters(os.path.abspath(objects)), cwd=scratch,
                       check=True, stdout=subprocess.DEVNULL)
        for name in os.listdir(scratch):
            with gzip.open(os.path.join(scratch, name), "rt", encoding="utf-8") as file:
                report = json.load(file)
            for source in report["files"]:
                if not source["file"].startswith(FOLDERS):
                    continue
                counts = found.setdefault(source["file"][len("runtime/"):], {})
                for function in source["functions"]:
                    name = function["name"]
                    counts[name] = counts.get(name, 0) + function["execution_count"]
    return found


def main(gcov, objects, *command):
    for stale in counters(objects):
        os.remove(stale)
    subprocess.run(command, check=True)
    found = functions(gcov, objects)
    wrong = []
    known = 0
    for source, counts in sorted(found.items()):
        for name, count in sorted(counts.items()):
            known += 1
            listed = (source, name) in UNREACHED
            if not count and not listed:
                wrong.append("%s: %s ran in no schedule" % (source, name))
            elif count and listed:
                wrong.append("%s: %s ran: take it out of UNREACHED" % (source, name))
    for source, name in sorted(UNREACHED):
        if name not in found.get(source, {}):
            wrong.append("%s: UNREACHED names %s, which is not there" % (source, name))
    print("coverage: %d functions in %d sources, %d of them named as not reached"
          % (known, len(found), len(UNREACHED)))
    for line in wrong:
        print("coverage: " + line)
    if not known:
        print("coverage: no source of FOLDERS was compiled with --coverage")
    return 1 if wrong or not known else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
