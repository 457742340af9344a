# plant.py SOURCE NAME OUT [PLANT] - a copy of a source (NAME: its path in messages) for the
# explorer, with a bug planted on purpose if PLANT names one.
#
# A bug is text that stands exactly once in the source, and what takes its place. When the text is
# not there the copy is left as it is and says so: that plant's test fails, the build does not.
import sys

PLANTS = {
    # An owner that pops near the top without the CAS, as in a deque whose thieves take one item.
    "double-steal": ("deque.c",
                     "#define TEFFI_DEQUE_NEAR TEFFI_STEAL_MAX",
                     "#define TEFFI_DEQUE_NEAR 1"),
    # The owner's CAS leaves top as it was: a thief that read it before takes what is gone.
    "aba": ("deque.c", "(uint32_t)(top + 1)", "(uint32_t)top"),
    # Lowering bottom and reading top change places.
    "weak-pop": ("deque.c",
                 "atomic_store_explicit(&deque->bottom, i, memory_order_seq_cst)",
                 "atomic_store_explicit(&deque->bottom, i, memory_order_release)"),
    # Publishing work and looking for sleepers change places.
    "weak-push": ("deque.c",
                  "atomic_store_explicit(&deque->bottom, bottom + 1, memory_order_seq_cst)",
                  "atomic_store_explicit(&deque->bottom, bottom + 1, memory_order_release)"),
    # A worker parks without another look at the queues.
    "lost-wakeup": ("idle.c", "bool found = teffi_any_work(real);", "bool found = false;"),
    # The last searcher takes its group and leaves the rest to nobody.
    "last-searcher": ("idle.c",
                      "(word & SEARCHING_MASK) == 1 && word >= IDLE && teffi_any_work(real)",
                      "(word & SEARCHING_MASK) > UINT16_MAX"),
    # What a worker had put off makes a group READY, which the worker does not look for any more.
    "late-work": ("find.c",
                  "    if (!group && teffi_laters_run(w->slot))\n        group = local(w);\n",
                  "    if (!group)\n        (void)teffi_laters_run(w->slot);\n"),
    # What a worker had put off was put off anew, and the worker goes to sleep.
    "put-off-anew": ("worker.c", "        if (w->slot && teffi_laters_any(w->slot))\n"
                     "            continue;\n", ""),
    # A worker blocks and leaves what it had put off to nobody.
    "held-back": ("idle.c", "    (void)teffi_laters_run(w->slot);\n", ""),
    # A slot is retaken without the barrier that makes its worker's flag visible.
    "no-barrier": ("idle.c",
                   "    if (!w->real->exchanges)\n        teffi_barrier_all();\n", ""),
    # At the end of its turn a worker goes on with the slot that is just being retaken.
    "unsettled": ("worker.c",
                  "    (void)teffi_enter(w);\n    if (!teffi_slot_kept(w))\n"
                  "        teffi_slot_settle(w);\n",
                  "    (void)teffi_enter(w);\n"),
    # A slot is retaken from a worker that was given it and has not woken up yet; it never does.
    "retaken-asleep": ("idle.c", "uint32_t was = teffi_enter(w);\n    bool have = unblock(w);",
                       "uint32_t was = 0;\n    bool have = unblock(w);"),
    # A group goes to rest over an item that has just come.
    "blind-rest": ("group.c",
                   "    if (atomic_compare_exchange_strong_explicit(&group->word, &word, rest, "
                   "memory_order_release,\n"
                   "                                                memory_order_relaxed))\n"
                   "        return true;\n"
                   "    set_running(group, true);\n"
                   "    return false;",
                   "    (void)word;\n"
                   "    atomic_store_explicit(&group->word, rest, memory_order_release);\n"
                   "    return true;"),
    # A push finds a running group and queues it a second time.
    "double-run": ("group.c",
                   "        group->exec->ops->ready(group->exec, group);\n    }\n    return true;",
                   "        group->exec->ops->ready(group->exec, group);\n"
                   "    } else if (atomic_load_explicit(&group->running, memory_order_relaxed)) {\n"
                   "        group->exec->ops->ready(group->exec, group);\n    }\n    return true;"),
    # A group is queued before the item that made it READY is there.
    "late-head": ("group.c",
                  "        group->head = item; /* a resting word holds no items, so item->next is "
                  "NULL */\n"
                  "        group->exec->ops->ready(group->exec, group);",
                  "        group->exec->ops->ready(group->exec, group);\n"
                  "        group->head = item;"),
    # A turn in place that gave way is left to nobody.
    "forgotten-turn": ("direct.c",
                       "    teffi_runqueue_push(&w->real->queue, group);\n", ""),
    # The hand-off is taken out while its worker may be using it.
    "grabbed-handoff": ("idle.c",
                        "        if (retake(w, turn))\n"
                        "            next = teffi_slot_take_next(slot);",
                        "        (void)turn;\n        next = teffi_slot_take_next(slot);"),
    # A thief whose stealing did not pay never looks again.
    "endless-nap": ("nap.c", "teffi_parker_wait(&w->parker, nap_ns)",
                    "teffi_parker_wait(&w->parker, UINT64_MAX)"),
    # A visitor gives its slot back to a worker that sleeps, and looks at nothing any more.
    "blind-visitor": ("idle.c", "if (look && teffi_any_work(real))", "if (look && !real)"),
    # A timer that was set on a visitor's slot is not seen by the worker that sleeps on with it.
    "overslept": ("idle.c",
                  "return teffi_wheel_next(&slot->wheel) < w->sleeps_until_ns ? w : NULL;",
                  "return NULL;"),
    # A worker blocks and goes on keeping what was brought.
    "kept-blocked": ("idle.c", "    (void)teffi_keeps_not(w->slot);\n    lock(real);",
                     "    lock(real);"),
    # A slot goes to a worker in a turn, with what another one has brought, and keeps it.
    "kept-let-go": ("idle.c", "    slot->worker = NULL;\n    (void)teffi_keeps_not(slot);\n",
                    "    slot->worker = NULL;\n"),
    # What a turn makes READY beside what was brought is kept, and others are woken for it.
    "kept-pushed": ("worker.c", "    (void)teffi_keeps_not(slot);\n    teffi_wake_one(w->real);\n}",
                    "    teffi_wake_one(w->real);\n}"),
    # What others were woken for is kept once something is brought.
    "kept-again": ("help.c",
                   "    return !atomic_load_explicit(&slot->keeps, memory_order_relaxed) &&\n"
                   "           teffi_deque_count(&slot->deque) > 1;",
                   "    return !slot;"),
    # A turn that is stuck goes on keeping what was brought, and the monitor looks on.
    "kept-stuck": ("monitor.c", "bool kept = teffi_keeps_not(slot);", "bool kept = false;"),
    # The monitor lets others in and tells nobody.
    "kept-untold": ("monitor.c", "(next && teffi_slot_open(real, slot, turns)) || kept;",
                    "(next && teffi_slot_open(real, slot, turns)) || (kept && !slot);"),
    # Its worker lets others in and tells nobody.
    "kept-unhelped": ("help.c",
                      "    if (teffi_deque_count(&w->slot->deque) && !teffi_keeps(w->slot))\n"
                      "        teffi_wake_one(w->real);",
                      ""),
    # What came before a group completed is dropped.
    "dropped-rest": ("group.c", "    *at = rest;", "    (void)rest;"),
}


def planted(text, source, plant):
    name, old, new = PLANTS[plant]
    if not source.endswith("/" + name) or text.count(old) != 1:
        return text + ('const char explore_not_planted[] = "plant.py: %s: %s no longer has what it'
                       ' replaces";\n' % (plant, name))
    return text.replace(old, new)


def main(source, name, out, plant=None):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    if plant:
        text = planted(text, source, plant)
    with open(out, "w", encoding="utf-8") as file:
        file.write('#include "explore_atomic.h"\n#line 1 "%s"\n%s' % (name, text))


if __name__ == "__main__":
    main(*sys.argv[1:])
