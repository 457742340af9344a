# plant.py SOURCE NAME OUT [PLANT] - a copy of a source (NAME: its path in messages) for the
# explorer, with a bug planted on purpose if PLANT names one.
#
# A bug is text that stands exactly once in the source, and what takes its place. When the text is
# not there the copy is left as it is and says so: that plant's test fails, the build does not.
import sys

PLANTS = {
    # An owner that pops near the top without the CAS, as in a deque whose thieves take one item.
    "double-steal": ("sched/queue/deque.c",
                     "#define TEFFI_DEQUE_NEAR TEFFI_STEAL_MAX",
                     "#define TEFFI_DEQUE_NEAR 1"),
    # The owner's CAS leaves top as it was: a thief that read it before takes what is gone.
    "aba": ("sched/queue/deque.c", "(uint32_t)(top + 1)", "(uint32_t)top"),
    # Lowering bottom and reading top change places.
    "weak-pop": ("sched/queue/deque.c",
                 "atomic_store_explicit(&deque->bottom, i, memory_order_seq_cst)",
                 "atomic_store_explicit(&deque->bottom, i, memory_order_release)"),
    # Publishing work and looking for sleepers change places.
    "weak-push": ("sched/queue/deque.c",
                  "atomic_store_explicit(&deque->bottom, bottom + 1, memory_order_seq_cst)",
                  "atomic_store_explicit(&deque->bottom, bottom + 1, memory_order_release)"),
    # A worker parks without another look at the queues.
    "lost-wakeup": ("sched/poll.c", "bool found = teffi_processors_have_work(sched);",
                    "bool found = false;"),
    # A worker that may wait in the poller ignores the work that it has seen.
    "poller-blind": ("sched/poll.c", "    bool has_processor = found ?",
                     "    bool has_processor =\n"
                     "        found && (!get_poller(sched) || get_poller(sched)->claimed) ?"),
    # A worker whose processor was borrowed while it polled keeps the poller, or leaves the events
    # that it had found, or wakes no other worker to poll.
    "poller-kept": ("sched/poll.c",
                    "    teffi_poller_release(poller);\n    if (has_processor)\n",
                    "    if (has_processor)\n        teffi_poller_release(poller);\n"
                    "    if (has_processor)\n"),
    "poller-unread": ("sched/poll.c", "    bool found = handle_events(sched, poller);\n    w->",
                      "    bool found = has_processor && handle_events(sched, poller);\n    w->"),
    "poller-alone": ("sched/poll.c", "    else\n        (void)teffi_wake_parked(sched);\n", ""),
    # It uses a processor that it is assigned meanwhile.
    "poller-races": ("sched/poll.c",
                     "    w->blocking += !has_processor; /* as in a blocking region, it uses no "
                     "processor */\n    bool found = handle_events(sched, poller);\n"
                     "    w->blocking -= !has_processor;\n",
                     "    bool found = handle_events(sched, poller);\n"),
    # The poller is released before its events are handled.
    "poller-early": ("sched/poll.c", "    poller->wait(poller, 0);\n",
                     "    poller->wait(poller, 0);\n    teffi_poller_release(poller);\n"),
    # All workers are parked, nobody polls, and the monitor sleeps.
    "poller-unwatched": ("sched/monitor.c", "(!teffi_sched_has_poller(sched) ||",
                         "(sched->exec.ops ||"),
    # All workers are in long turns, and no other thread is asked to poll.
    "poller-neglected": ("sched/poll.c",
                         "    if (none_looked && !woke)\n        poller->neglected(poller);\n",
                         "    (void)(none_looked && !woke);\n"),
    # Under a limit: a worker that parks counts as running; so does one in a long turn; the monitor
    # stops counting that one, or raises the limit, and wakes nobody for the work that waits.
    "limit-blind": ("sched/idle.c", "below + word / TEFFI_IDLE;", "below + 0 * word;"),
    "limit-stuck": ("sched/monitor.c", "c->limit + count_unavailable_processors(sched)",
                    "c->limit + 0 * count_unavailable_processors(sched)"),
    "limit-lifted": ("sched/monitor.c",
                     "return below > before && teffi_processors_have_work(sched);",
                     "return below > before && !sched;"),
    # The monitor raises the limit and looks at the queues, and neither it nor a pusher sees what
    # the other one did.
    "limit-races": ("sched/monitor.c",
                    "atomic_store_explicit(&sched->wake_below, below, memory_order_seq_cst);",
                    "atomic_store_explicit(&sched->wake_below, below, memory_order_release);"),
    # The last searcher takes its group and leaves the rest to nobody.
    "last-searcher": ("sched/idle.c",
                      "(word & TEFFI_SEARCHING_MASK) == 1 && word >= TEFFI_IDLE &&",
                      "(word & TEFFI_SEARCHING_MASK) > UINT16_MAX &&"),
    # Deferred work makes a group READY, which its worker does not look for any more.
    "late-work": ("sched/find.c",
                  "    if (!group && teffi_deferral_run(&p->deferral))\n"
                  "        group = pick_local(w);\n",
                  "    if (!group)\n        (void)teffi_deferral_run(&p->deferral);\n"),
    # Work was deferred anew, and the worker parks.
    "deferred-anew": ("sched/run.c",
                      "    if (w->processor && teffi_deferral_has_work(&w->processor->deferral))\n"
                      "        return true;\n", ""),
    # A worker blocks and leaves its deferred work to nobody.
    "held-back": ("sched/blocking.c",
                  "    (void)teffi_deferral_run(&w->processor->deferral);\n", ""),
    # A processor is retaken without the barrier that makes its worker's flag visible.
    "no-barrier": ("sched/monitor.c",
                   "    if (!w->sched->no_membarrier)\n"
                   "        teffi_barrier_run_on_all_threads();\n", ""),
    # At the end of its turn a worker goes on with the processor that is just being retaken.
    "unsettled": ("sched/run.c", "        (void)teffi_processor_use_begin_await_retake(w);\n",
                  "        (void)teffi_processor_use_begin(w);\n"),
    # A processor is retaken from a worker that was assigned it and has not woken up yet; it never
    # does.
    "retaken-asleep": ("sched/blocking.c",
                       "was = teffi_processor_use_begin(w);\n"
                       "    bool has_processor = regain_processor(w);",
                       "was = 0;\n    bool has_processor = regain_processor(w);"),
    # A group goes to rest over an item that has just come.
    "blind-rest": ("group/group.c",
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
    "double-run": ("group/group.c",
                   "word_state(word)))\n                return true;",
                   "word_state(word))) {\n"
                   "                if (atomic_load_explicit(&group->running, "
                   "memory_order_relaxed))\n"
                   "                    group->exec->ops->ready(group->exec, group);\n"
                   "                return true;\n            }"),
    # A group is queued before the item that made it READY is there.
    "late-head": ("group/group.c",
                  "    group->head = item;\n"
                  "    group->exec->ops->ready(group->exec, group);",
                  "    group->exec->ops->ready(group->exec, group);\n"
                  "    group->head = item;"),
    # A batch that was taken back is run by the worker as well, which finds it in its queue.
    "run-again": ("group/inbound.c", "    if (was == TEFFI_INBOUND_QUEUED) {\n",
                  "    if (was != TEFFI_INBOUND_IDLE) {\n"),
    # The queue stops, and does not wait for a put that has made its group READY.
    "put-unawaited": ("group/inbound.c", "memory_order_acquire) != STOPPED)",
                      "memory_order_acquire) < STOPPED)"),
    # A client's thread that is to wait for another one's polling does not see that it has ended;
    # who ends it hands it on to nobody, or before the poller is free, or not although it was chosen
    # meanwhile; or it leaves the poller to a ticker that is not told.
    "client-unlooked": ("link/conn/polling.c",
                        "if (!atomic_load_explicit(&p->poller->claimed, memory_order_seq_cst))\n"
                        "        tokens",
                        "if (!p->poller)\n        tokens"),
    "client-kept": ("link/conn/polling.c",
                    "    teffi_poller_release(poller);\n    hand_over_polling(conns);\n",
                    "    teffi_poller_release(poller);\n"),
    "client-early": ("link/conn/polling.c",
                     "    teffi_poller_release(poller);\n    hand_over_polling(conns);\n",
                     "    hand_over_polling(conns);\n    teffi_poller_release(poller);\n"),
    "client-both": ("link/conn/polling.c",
                    "    if (tokens & TEFFI_TOKEN && tokens & TEFFI_TOKEN_GIVEN)\n"
                    "        hand_over_polling(conns);\n", ""),
    "client-untold": ("link/conn/polling.c",
                      "    if (!wake_waiter(&conns->polling))\n"
                      "        teffi_conns_ask_to_run_delayed_work(conns);",
                      "    (void)wake_waiter(&conns->polling);"),
    # The ticker gives up the poller, or has had it for a look, and threads that wait do not hear
    # of it; it clears the request for a run that it has not made; nobody polls, and it does not.
    "ticker-silent": ("link/conn/polling.c",
                      "memory_order_relaxed);\n        hand_over_polling(conns);",
                      "memory_order_relaxed);"),
    "ticker-looked": ("link/conn/polling.c", "    if (polled && conns->role == TEFFI_ROLE_CLIENT)",
                      "    if (!p->poller)"),
    # It counts the look as another thread's, and never polls while it sleeps.
    "ticker-restless": ("link/conn/polling.c", "    p->claims_before++;\n    (void)teffi_parker",
                        "    (void)teffi_parker"),
    # After such a look it wakes a thread that waits, and does not poll if there is none.
    "ticker-left": ("link/conn/polling.c", "        hand_over_polling(conns); /* a thread",
                    "        (void)wake_waiter(p); /* a thread"),
    "ticker-late": ("link/heartbeat.c",
                    "    atomic_store_explicit(&ticker->asked_soon, false, memory_order_seq_cst);\n"
                    "    teffi_sender_write_coalesced(&link->conns);",
                    "    atomic_store_explicit(&ticker->asked_soon, false, memory_order_release);\n"
                    "    teffi_sender_write_coalesced(&link->conns);"),
    "ticker-idle": ("link/conn/polling.c",
                    "        atomic_store_explicit(&p->by_ticker, true, memory_order_relaxed);",
                    "        changed = false;"),
    # A turn in place that yielded is left to nobody.
    "forgotten-turn": ("sched/direct.c", "            teffi_submit_yielded_group(w, group);\n",
                       "            (void)group;\n"),
    # The LIFO slot is emptied while its worker may be using it.
    "grabbed-lifo": ("sched/monitor.c",
                     "        if (begin_retake(w, run))\n"
                     "            group = teffi_processor_take_lifo(p);",
                     "        (void)run;\n        group = teffi_processor_take_lifo(p);"),
    # A thief whose stealing did not pay never looks again.
    "endless-back-off": ("sched/idle.c", "teffi_parker_wait(&w->parker.parker, ns)",
                         "teffi_parker_wait(&w->parker.parker, UINT64_MAX)"),
    # A borrower returns its processor to a worker that sleeps, and looks at no queue any more.
    "blind-borrower": ("sched/borrow.c", "if (look && teffi_processors_have_work(sched))",
                       "if (look && !sched)"),
    # A timer that was set on a borrowed processor is not seen by the worker that sleeps with it.
    "overslept": ("sched/borrow.c",
                  "return teffi_wheel_next_due(&p->wheel) < w->sleeps_until_ns ? w : NULL;",
                  "return NULL;"),
    # A worker blocks, and its local batch still forbids stealing.
    "local-blocked": ("sched/blocking.c",
                      "    (void)teffi_processor_allow_stealing(w->processor);\n", ""),
    # A processor goes to a worker in a turn, with the local batch of another one, which thieves
    # still ignore.
    "local-released": ("sched/processor.c",
                       "    p->worker = NULL;\n    (void)teffi_processor_allow_stealing(p);\n",
                       "    p->worker = NULL;\n"),
    # What a turn makes READY beside a local batch cannot be stolen, and others are woken for it.
    "local-pushed": ("sched/submit.c",
                     "            teffi_runqueue_push(&w->sched->queue, group);\n"
                     "        (void)teffi_processor_allow_stealing(p);\n",
                     "            teffi_runqueue_push(&w->sched->queue, group);\n"),
    # Groups that others were woken for cannot be stolen when a local batch is added to them.
    "local-again": ("sched/submit.c",
                    "bool shared = !atomic_load_explicit(&p->no_steal, memory_order_relaxed) &&",
                    "bool shared = !p &&"),
    # A turn is stuck, its worker's local batch still forbids stealing, and the monitor looks on.
    "local-stuck": ("sched/monitor.c", "bool allowed = teffi_processor_allow_stealing(p);",
                    "bool allowed = false;"),
    # The monitor allows stealing of a local batch and wakes nobody.
    "local-untold": ("sched/monitor.c",
                     "(lifo && move_lifo_group_to_global_queue(sched, p, run)) || allowed;",
                     "(lifo && move_lifo_group_to_global_queue(sched, p, run)) || "
                     "(allowed && !p);"),
    # A worker allows stealing of its local batch and wakes nobody.
    "local-unhelped": ("sched/find.c",
                       "    if (teffi_deque_count(&p->deque) &&"
                       " !teffi_processor_forbids_stealing(p))\n"
                       "        teffi_wake_one(w->sched);",
                       ""),
    # A spare thread's time is over, and it ends although it was assigned a processor meanwhile.
    "retired-spare": ("sched/idle.c",
                      "    if (w->state != TEFFI_WORKER_SPARE || !has_surplus_threads(sched) ||",
                      "    if (!has_surplus_threads(sched) ||"),
    # A worker that looks elsewhere first takes two groups from the global queue and runs one.
    "dropped-fair": ("sched/find.c",
                     "    if (!teffi_runqueue_pop(&w->sched->queue, &group, 1))\n"
                     "        return NULL;\n",
                     "    if (!teffi_runqueue_pop(&w->sched->queue, w->batch, 2))\n"
                     "        return NULL;\n"
                     "    group = w->batch[0];\n"),
    # The last part ends before its turn has left its stack, and nobody goes on with the turn.
    "left-asleep": ("fork/fork.c",
                    "    join *j = arg;\n    if (count_down(j))\n"
                    "        teffi_group_make_ready(j->turn);",
                    "    (void)count_down(arg);"),
    # A message reaches the process that uses the slot of the one it was sent to.
    # A process is found before its group is open: the item of a signal is lost.
    "lost-signal": ("process/system.c",
                    "        teffi_group_reuse(&p->group);\n    uint32_t generation = "
                    "atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;\n",
                    "        atomic_fetch_add(&p->generation, 1), teffi_group_reuse(&p->group);\n"
                    "    uint32_t generation = p->generation | 1;\n"),
    "late-letter": ("process/turn.c",
                    "teffi_process_accepts_event(p, teffi_event_of(item)))\n"
                    "        teffi_events_push",
                    "!p->gone)\n        teffi_events_push"),
    # A request that comes while its process ends gets no response.
    "unanswered": ("process/events.c",
                   "        refuse_event(p, teffi_event_of(item));",
                   "        teffi_event_free(p, teffi_event_of(item));"),
    # A process without a fiber sleeps, and who pushes an item sees that too late.
    "asleep-beside-mail": ("process/wait.c",
                           "atomic_store_explicit(&p->sleeping, true, memory_order_seq_cst);",
                           "atomic_store_explicit(&p->sleeping, true, memory_order_release);"),
    # A timer is taken off a wheel that it has just left, for another one or because it fires.
    "moved-timer": ("sched/queue/timer.c",
                    "bool here = atomic_load_explicit(&timer->where, memory_order_relaxed) == id;",
                    "bool here = true;"),
    # A timer that moves to another wheel while it is cancelled is left set.
    "lost-timer": ("sched/queue/timer.c",
                   "        if (here)\n            return true;\n", "        return here;\n"),
    # A system group is queued, and its thread sleeps on.
    "system-asleep": ("sched/system.c",
                      "    if (teffi_worker_self() != &sched->system) "
                      "/* the system thread looks before it sleeps */\n"
                      "        teffi_worker_wake(&sched->system);\n", ""),
    # A system group that has used up its share is left to nobody.
    "system-dropped": ("sched/system.c",
                       "    if (again)\n"
                       "        teffi_runqueue_push(&w->sched->system_queue, group);\n",
                       "    (void)again;\n"),
    # What came before a group completed is dropped.
    "dropped-rest": ("group/group.c", "    *at = pushed;", "    (void)pushed;"),
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
