# named.py - mutants that are always planted: the numbers and rules that the scheduler has from its
# sources, each changed.
#
# name: source, text that stands there exactly once, and what takes its place.

NAMED = {
    "a silo hides its certificate": (
        "runtime/link/handshake.c", "(!silo || conn->dialled)", "(!silo || true)"),
    "an acceptor must show its certificate": (
        "runtime/link/handshake.c", "(!silo || conn->dialled)", "!silo"),
    "a certificate for clients is a silo's": (
        "runtime/link/identity.c", "    else if (silo && !may_be_server(",
        "    else if (silo && false && !may_be_server("),
    "one host displaces the handshakes of others": (
        "runtime/link/accept.c", "len) % LINK_HOSTS)", "len) % 1)"),
    "a connection that is up counts as its host's handshake": (
        "runtime/link/handshake.c", "        teffi_conn_leave_host(conn);", "        ;"),
    "a dialler shows a certificate that is not its own": (
        "runtime/link/handshake.c", "!h->dialler_key ||", "true || !h->dialler_key ||"),
    "an acceptor shows a certificate that is not its own": (
        "runtime/link/handshake.c", "        why = not_signed;", "        why = NULL;"),
    "a node connects again with another certificate": (
        "runtime/link/handshake.c",
        "        memcmp(peer->in->handshake.remote.key, hello->key, sizeof hello->key) != 0)",
        "        false)"),
    "a signature is valid for the other side": (
        "runtime/link/identity.c", "    memcpy(input, labels[prover], sizeof labels[0]);",
        "    memcpy(input, labels[prover * 0], sizeof labels[0]);"),
    "the clients' authority signs silos": (
        "runtime/link/identity.c", "clients && identity->has_client_authority",
        "(clients || true) && identity->has_client_authority"),
    "a silo id belongs to no certificate": (
        "runtime/message/hello.c", "memcmp(expected, shown, TEFFI_KEY_BYTES)",
        "memcmp(expected, shown, 0)"),
    "a dialled silo may show any certificate": (
        "runtime/cluster/membership.c",
        "    node->check_key = teffi_membership_check_key;\n", ""),
    "a silo joins though it does not reach another one": (
        "runtime/cluster/join.c", "    teff_err err = teffi_reach_check_before_join(ctx);",
        "    teff_err err = TEFF_OK;"),
    "the silo with the fewest cuts goes": (
        "runtime/cluster/reach.c", "        if (count > most || (count && count == most &&",
        "        if ((count && (count < most || !most)) || (count && count == most &&"),
    "a silo that must go keeps its fence": (
        "runtime/cluster/reach.c", "    teff_err err = n ? teffi_rows_remove_fences(",
        "    teff_err err = n > TEFFI_WATCHED_MAX ? teffi_rows_remove_fences("),
    "a stranger may use its seed's store": (
        "grains/silo/remote_store.c", "    if (err)\n        respond_with_refusal_and_free(",
        "    if (false)\n        respond_with_refusal_and_free("),
    "a stranger removes the row of a member": (
        "runtime/cluster/outsider_rows.c", "!view_has_silo(r->view, silo)",
        "(true || !view_has_silo(r->view, silo))"),
    "a join is checked by the view of another version": (
        "runtime/cluster/outsider_rows.c", "    if (version && version->etag != ",
        "    if (false && version->etag != "),
    "a dead silo may use the store of another silo": (
        "runtime/cluster/outsider_rows.c", "    if (standing == TEFFI_STANDING_DEAD)\n",
        "    if (false)\n"),
    "a silo that has just joined does not ask its seed again": (
        "grains/silo/remote_store.c", "    return (err == TEFF_E_REFUSED && may_be_member(",
        "    return (false && err == TEFF_E_REFUSED && may_be_member("),
    "a silo does not dial its seed again": (
        "grains/silo/seed.c", "    while (err && teffi_seed_may_return(",
        "    while (false && err && teffi_seed_may_return("),
    "a silo keeps the id of its first seed": (
        "grains/silo/seed.c", "atomic_exchange(&node->seed, id) != id", "node->seed != id"),
    "a request that was not sent to the seed is not sent again": (
        "grains/silo/remote_store.c", "(not_run && teffi_seed_may_return(",
        "(false && not_run && teffi_seed_may_return("),
    "a heartbeat is refused by a seed that has lost its rows": (
        "runtime/cluster/outsider_rows.c", " || op_writes_own_heartbeat(r))",
        " || (false && op_writes_own_heartbeat(r)))"),
    "a seed does not wait for the silos that use its store": (
        "grains/silo/silo.c", "run_step_on_calling_thread(silo, teffi_silo_await_borrowers, ms);",
        "TEFF_OK;"),
    "a seed waits for silos that are dead": (
        "grains/silo/borrowers.c", "now - borrower->wrote_ns <= ",
        "0 * (now - borrower->wrote_ns) <= "),
    "a silo joins without its key": (
        "runtime/cluster/join.c", "    if (key)\n        memcpy(",
        "    if (!key)\n        memcpy("),
    "a probe after two visits": (
        "grains/activation/waits.c", "PAUSE_MIN = 2", "PAUSE_MIN = 1"),
    "a probe every 1.5 s": ("grains/activation/waits.c", "PAUSE_MAX = 40", "PAUSE_MAX = 60"),
    "a visit every 50 ms": (
        "grains/activation/waits.h", "TEFFI_VISIT_MS = 25", "TEFFI_VISIT_MS = 50"),
    "a probe follows a wait for any call": (
        "grains/request/deadlock.c", "!turn->ctx.waits_for_any && ", ""),
    "a cycle is reported after one round": (
        "grains/request/deadlock.c", "    if (p->confirms) {\n        end_request",
        "    if (true) {\n        end_request"),
    "the second round does not look at the first call again": (
        "grains/request/deadlock.c", "    if (!first)\n", "    if (!first && !p->confirms)\n"),
    "each grain of a cycle ends a request": (
        "grains/request/deadlock.c", "at->aside && teffi_pid_is_lower(own, initiator)",
        "at->aside && teffi_pid_is_lower(own, own)"),
    "a probe ends a request at a silo that did not begin it": (
        "grains/request/deadlock.c", "p->token == make_token(act) &&", "true &&"),
    "2,048 probes of other silos in 25 ms": (
        "grains/request/deadlock.h", "TEFFI_PROBES_MAX = 1024", "TEFFI_PROBES_MAX = 2048"),
    "a writer does not wait for readers": (
        "grains/request/deadlock.c", "own != TEFFI_FREELY", "own == TEFFI_EXCLUSIVE"),
    "a request ends a delay": (
        "grains/activation/activation.h", "used - now > TEFFI_DELAY_MAX_MS", "true || used"),
    "a delay of 24 days seems long past": (
        "grains/activation/activation.h", "ahead <= TEFFI_DELAY_MAX_MS ?", "ahead <= 1000 ?"),
    "IDLE stays although the activation is a duplicate": (
        "grains/activation/activation.c", "(!teffi_reason_is_for_unused(was) ||",
        "(true ||"),
    "an activation in use stays old": (
        "grains/hosting/handler.c",
        "        teffi_activation_update_last_use(act);\n        return false;",
        "        return false;"),
    "a transaction's grain is shed": (
        "grains/hosting/handler.c", "(act->more->pending.count || act->more->lock)",
        "act->more->pending.count"),
    "a delay does not keep an activation when there are too many": (
        "grains/hosting/collector.c", "return age >= 0 &&", "return"),
    "an activation that ends is asked again": (
        "grains/hosting/collector.c", "    if (share > s.ending && s.n) {\n"
        "        choose_least_age(&s, share - s.ending);",
        "    if (share && s.n) {\n        choose_least_age(&s, share);"),
    "the youngest end first": (
        "grains/hosting/collector.c", "return (x < y) - (x > y);", "return (x > y) - (x < y);"),
    "a walk for each new activation": (
        "grains/hosting/collector.c", "    low -= low / 16;\n", ""),
    "no room while activations end": (
        "grains/directory/shard.h", "n > max + max / 4", "n > max"),
    "memory is short until the same percentage": (
        "grains/hosting/collector.c", "(c->is_short || use->stalled_percent >= STALLED_PERCENT)",
        "use->stalled_percent >= STALLED_PERCENT"),
    "threads that wait for memory do not count": (
        "grains/hosting/collector.c", "use->stalled_percent >= STALLED_PERCENT));",
        "use->stalled_percent > 100));"),
    "a walk for memory is repeated": (
        "grains/hosting/collector.c", "    c->memory_share = 0;\n", ""),
    "cached files are used memory": (
        "runtime/os/memory_use.c", "used > cached ? used - cached : 0", "used + 0 * cached"),
    "the loosest limit of memory counts": (
        "runtime/os/memory_use.c", "(double)a->used_bytes / (double)a->limit_bytes >",
        "(double)a->used_bytes / (double)a->limit_bytes <"),
    "a hook is ended after 30 s": (
        "runtime/include/teff/limits.h", "TEFF_HOOK_MAX_MS 60000", "TEFF_HOOK_MAX_MS 30000"),
    "a hook that is ended lets its call wait": (
        "grains/hosting/stuck.c", "        (void)teffi_call_fail(call, TEFF_E_CANCELLED, NULL);",
        "        (void)call;"),
    "the newest turn is logged": (
        "grains/hosting/stuck.c", "if (age <= (int32_t)*age_ms)",
        "if (age <= 0 || (*age_ms && age >= (int32_t)*age_ms))"),
    "a turn is logged at each visit": (
        "grains/hosting/stuck.c", "    *next_ms = 2 * age_ms;", "    *next_ms = 0;"),
    "the time of the load counts as the hook's": (
        "grains/hosting/life.c", "    ctx->suspended_ms = 0;\n", "    (void)ctx;\n"),
    "a doomed hook is not unregistered": (
        "grains/hosting/life.c",
        "    atomic_store_explicit(&ctx->doomed, TEFF_OK, memory_order_relaxed);\n", ""),
    "activations without limit": (
        "grains/directory/shard.h", "return max && n >", "return false && n >"),
    "each end of an activation is a forward": (
        "grains/hosting/handler.c", "    if (act->was_valid)\n", "    if (false)\n"),
    "ends before an activation is valid are no forwards": (
        "grains/hosting/handler.c", "    if (act->was_valid)\n", "    if (true)\n"),
    "a state that cannot be rolled back is written with the answer": (
        "grains/activation/turn.c",
        "    if (teffi_state_is_broken(turn->act)) /* do not write",
        "    if (false) /* do not write"),
    "a processor is borrowed beside enough workers": (
        "runtime/sched/borrow.c", " || teffi_enough_workers_are_running(sched) ||", " ||"),
    "a promise of a silo that reaches the store": (
        "runtime/cluster/promise.c", "        p->confirmed.number && now - p->confirmed.sent_ns >",
        "        p->confirmed.number && now + (1ull << 60) - p->confirmed.sent_ns >"),
    "a stop that waits for turns is not told": (
        "grains/silo/stop_watch.c", "    report_stop_that_hangs(w);\n",
        "    if (w->lines)\n        report_stop_that_hangs(w);\n"),
    "a stop that ends is told": (
        "grains/silo/stop_watch.c", "now_ns < until_ns;", "now_ns > until_ns;"),
    "a stop is watched by a thread in a simulator": (
        "grains/silo/stop_watch.c", "    if (!silo->node.home.exec->ops->turns)",
        "    if (silo->node.home.exec->ops->turns == (void *)1)"),
    "the goodbye counts for stop_ms": (
        "grains/silo/lifecycle.c", "    if (node->home.net && timeout_ms)\n",
        "    teffi_stop_watch_begin(silo);\n    if (node->home.net && timeout_ms)\n"),
    "a stop that waits has no turns": (
        "runtime/sched/report.c",
        "        if (!shot.workers[i].seen.running)\n            continue;",
        "        if (shot.workers[i].seen.running)\n            continue;"),
    "a damaged row in postgres is good": (
        "runtime/store/postgres.c", "CASE WHEN sum IS NULL OR sum =", "CASE WHEN true OR sum ="),
    "a damaged row in postgres is overwritten": (
        "runtime/store/postgres_schema.c", "IF damaged THEN", "IF false THEN"),
    "a row that postgres cannot read is not overwritten": (
        "runtime/store/postgres_schema.c", "CASE WHEN marks[i] & 1 = 0", "CASE WHEN true"),
    "an upgrade in postgres waits for a backup": (
        "runtime/store/postgres_schema.c", "lock_timeout = '2s'", "lock_timeout = '0s'"),
    "workers that never end a turn are not stuck": (
        "runtime/cluster/lease.c", "bool still = queued && runs == s->runs;",
        "bool still = queued && runs > s->runs;"),
    "workers that take other work are stuck": (
        "runtime/cluster/lease.c", "bool still = queued && runs == s->runs;",
        "bool still = queued;"),
    "a pause counts as if workers were stuck": (
        "runtime/cluster/lease.c", "(between < most ? between : most)", "((void)most, between)"),
    "a lease is extended with one promise fewer": (
        "runtime/cluster/promise.c", "    if (given < needed ||", "    if (given + 1 < needed ||"),
    "promises extend a lease without limit": (
        "runtime/cluster/promise.c", "until_ns < last_ns ? until_ns : last_ns)",
        "last_ns ? until_ns : last_ns)"),
    "the oldest of its own queue first": (
        "runtime/sched/find.c",
        "return group ? group : count_local_pick(p, teffi_deque_pop(&p->deque));",
        "return group ? group : pop_oldest(p);"),
    "the group that a turn wakes last goes behind": (
        "runtime/sched/submit.c",
        "        atomic_store_explicit(&p->lifo, group, memory_order_relaxed);\n"
        "    if (older) {\n        push_displaced_group_and_end_use(w, p, older, was);",
        "        atomic_store_explicit(&p->lifo, older ? older : group, memory_order_relaxed);\n"
        "    if (older) {\n        push_displaced_group_and_end_use(w, p, group, was);"),
    "no batch from the global queue": (
        "runtime/sched/exec.c", "TAKE_MAX = 16", "TAKE_MAX = 0"),
    "a batch of 15": ("runtime/sched/exec.c", "TAKE_MAX = 16", "TAKE_MAX = 15"),
    "always the same victim": (
        "runtime/sched/find.c",
        "(unsigned)(teffi_random_next(&w->processor->rng) % sched->n_processors)",
        "0 * (unsigned)teffi_random_next(&w->processor->rng)"),
    "steals one": (
        "runtime/sched/find.c", "teffi_deque_steal(&victim->deque, out, TEFFI_STEAL_MAX)",
        "teffi_deque_steal(&victim->deque, out, 1)"),
    "steals a third": (
        "runtime/sched/queue/deque.c", "((unsigned)count + 1) / 2", "((unsigned)count + 2) / 3"),
    "searches once, without a yield": (
        "runtime/sched/find.c", "ROUNDS_TIGHT = 4,\n    ROUNDS = 16",
        "ROUNDS_TIGHT = 1,\n    ROUNDS = 1"),
    "searches 15 times": ("runtime/sched/find.c", "    ROUNDS = 16", "    ROUNDS = 15"),
    "yields the core after 5 rounds": (
        "runtime/sched/find.c", "ROUNDS_TIGHT = 4", "ROUNDS_TIGHT = 5"),
    "looks at the poller every 48 picks": (
        "runtime/sched/poll.c", "LOOK_EVERY = 64", "LOOK_EVERY = 48"),
    "a slice of 100 ms": ("runtime/sched/exec.c", "SLICE_MS = 10 ", "SLICE_MS = 100 "),
    "a slice of 12.5 ms": (
        "runtime/sched/exec.c", "TEFFI_MONITOR_NS +\n           1;",
        "TEFFI_MONITOR_NS +\n           2;"),
    "a quantum of 80 ms": (
        "runtime/sched/run.c", "QUANTUM_NS 100000000u ", "QUANTUM_NS 80000000u "),
    "a quantum of 120 ms": (
        "runtime/sched/run.c", "QUANTUM_NS 100000000u ", "QUANTUM_NS 120000000u "),
    "a budget of 255 items": ("runtime/sched/run.c", "ITEMS_MAX = 256", "ITEMS_MAX = 255"),
    "level 1 from 6 ms on": ("runtime/sched/policy/level.c", "{5000, 100000}", "{6000, 100000}"),
    "level 2 from 90 ms on": ("runtime/sched/policy/level.c", "{5000, 100000}", "{5000, 90000}"),
    "a share of 75 % for level 0": (
        "runtime/sched/policy/level.c", "SHARE_DEFAULT = 80", "SHARE_DEFAULT = 75"),
    "five times as often level 1 as level 2": (
        "runtime/sched/policy/level.c", "RATIO = 4", "RATIO = 5"),
    "run again in place 6 times": (
        "runtime/group/exec.h", "TEFFI_REPOLLS_MAX = 5", "TEFFI_REPOLLS_MAX = 6"),
    "warns of turns over 0.9 s": (
        "runtime/group/warn.h", "TEFFI_TURN_WARN_MS = 1000", "TEFFI_TURN_WARN_MS = 900"),
    "warns of items that waited 11 s": (
        "runtime/group/warn.h", "TEFFI_DELAY_WARN_MS = 10000", "TEFFI_DELAY_WARN_MS = 11000"),
    "polls a condition every 10 ms for one": (
        "runtime/engine/task.c", "ms * 1000000ull", "ms * 10000000ull"),
    "9,999 threads": (
        "runtime/sched/worker.h", "TEFFI_THREADS_MAX = TEFF_THREAD_BORROWED",
        "TEFFI_THREADS_MAX = TEFF_THREAD_BORROWED - 1"),
    "a thread more at the start": (
        "runtime/sched/exec.c", "workers ? workers : teffi_cpu_count()",
        "workers ? workers : teffi_cpu_count() + 1"),
    "items a 64th cheaper are enough": (
        "runtime/sched/policy/contention.c", "GAIN_ONE / 32", "GAIN_ONE / 64"),
    "a lower limit needs its gain in each trial": (
        "runtime/sched/policy/contention.c", "c->went_down ? GAIN_MIN", "true ? GAIN_MIN"),
    "each trial of limits counts alone": (
        "runtime/sched/policy/contention.c", "counts ? (g->gain + gain) / 2", "counts ? gain"),
    "gains of trials count for 100 s": (
        "runtime/sched/policy/contention.c", "KEPT_NS (3 *", "KEPT_NS (25 *"),
    "an upgraded process is evicted as one that has not started": (
        "runtime/process/turn.c", "!p->gone && !p->started",
        "!p->gone && p->status == TEFFI_STATUS_START"),
    "contended at a seventh of delay": (
        "runtime/sched/policy/contention.c", "DELAYED = 6", "DELAYED = 7"),
    "trials of six windows": ("runtime/sched/policy/contention.c", "WINDOWS = 8", "WINDOWS = 6"),
    "windows of 10 ms": (
        "runtime/sched/policy/contention.c", "#define WINDOW_NS (20", "#define WINDOW_NS (10"),
    "pauses of 8 s": ("runtime/sched/policy/contention.c", "(4 * PAUSE", "(8 * PAUSE"),
    "contended although hardly anything runs": (
        "runtime/sched/policy/contention.c", "BUSY = 10", "BUSY = 12"),
    "trials of few items": (
        "runtime/sched/policy/contention.c", "ITEMS_MIN = 256", "ITEMS_MIN = 250"),
    "windows of any length": (
        "runtime/sched/policy/contention.c", "#define LATE_NS (100", "#define LATE_NS (1000"),
    "what a stuck worker has deferred waits": (
        "runtime/sched/monitor.c",
        "        if (p->seen_ticks > 1)\n            (void)teffi_deferral_run",
        "        if (false)\n            (void)teffi_deferral_run"),
    "long runs count against the limit": (
        "runtime/sched/monitor.c", "c->limit + count_unavailable_processors(sched)", "c->limit"),
    "placement ignores the version": (
        "grains/directory/placement.c", "(int64_t)want.version;", "0;"),
    "five bits of a version": (
        "grains/directory/placement.h", "info->version & TEFFI_VERSION_MAX) << 10",
        "info->version & 31) << 10"),
    "the version begins a bit too low": (
        "grains/directory/placement.h", "return flags >> 10;", "return flags >> 9;"),
    "an old activation runs what newer callers ask": (
        "grains/hosting/handler.c",
        "return teffi_flags_type_version(msg->flags) > act->type->info->version;", "return false;"),
    "a call in place ignores the version": (
        "grains/request/direct.c", "ask->type->version > info->version", "false"),
    "a silo does not say its versions": (
        "runtime/cluster/rows.c", "    msg.n_versions = row->member.n_versions;\n", ""),
    "a view forgets the versions": (
        "runtime/cluster/view.c", "return i < member->n_versions ? member->versions[i] : 0;",
        "return 0;"),
    "unknown fields are dropped where a message is nested": (
        "runtime/message/decode.c", "err = keep_unknown_field(d, end, tag, msg);",
        "err = keep_unknown_field(d, end, tag, msg), msg->n_unknown_fields -= !err && depth > 1;"),
    "copies of a state drop unknown fields": (
        "codegen/emit/copy.c", "src->base.n_unknown_fields > 0 &&",
        "src->base.n_unknown_fields > 99 &&"),
    "an answer leaves before it is written": (
        "grains/activation/state.c",
        "act->stored->answers->unsaved ? write_or_remove_state_row(ctx, act, false) : TEFF_OK",
        "TEFF_OK"),
    "an answer is written only once": (
        "grains/activation/answers.c", "    answers->unsaved = true;\n", ""),
    "the answers of a row are not loaded": (
        "grains/activation/state.c",
        "d->err = teffi_answers_move_from_state(d->act, stored, scratch)",
        "d->err = TEFF_OK"),
    "a key counts for every method": (
        "grains/activation/answers.c", "teffi_hash64(packed, len, method->id)",
        "teffi_hash64(packed, len, method->id & 0)"),
    "a key counts for every request": (
        "grains/activation/answers.c", "teffi_hash64(packed, len, method->id)", "method->id"),
    "a turn with a key saves in its middle": (
        "grains/activation/state.c", "        act->stored->answers->turn = ctx;\n",
        "        act->stored->answers->turn = NULL;\n        act->stored->saving = false;\n"),
    "others save beside a turn with a key": (
        "grains/activation/state.c", "        act->stored->answers->turn = ctx;\n",
        "        act->stored->answers->turn = ctx;\n        act->stored->saving = false;\n"),
    "a cleared state loses its answers": (
        "grains/activation/state.c", ".remove = clears && !teffi_activation_has_answers(act)",
        ".remove = clears"),
    "one answer less is kept": (
        "grains/activation/answers.c", "return max ? max : TEFF_ANSWERS_DEFAULT;",
        "return max ? max : TEFF_ANSWERS_DEFAULT - 1;"),
    "an answer is the state's of later": (
        "grains/activation/turn.c",
        "    if (body && (err = copy_response(turn, method, &ctx->arena, body, out)) == "
        "TEFF_E_NOMEM)\n        teffi_ctx_exit_turn(ctx, err);\n", "    *out = body;\n"),
    "no memory for a response is the answer": (
        "grains/activation/turn.c",
        "body, out)) == TEFF_E_NOMEM)", "body, out)) == TEFF_E_MAX)"),
    "what is not written with its answer is seen": (
        "grains/activation/state.c",
        "    if (err)\n"
        "        request_deactivation(act); /* no later turn sees unsaved changes */\n", ""),
    "a younger transaction waits for an older one": (
        "grains/activation/lock.c",
        "return dies || (is_new && older_transaction_waits(act, transaction))",
        "return (dies || (is_new && older_transaction_waits(act, transaction))) && !act"),
    "a roll-back keeps the changes": (
        "grains/activation/lock.c", "if (lock->before && !teffi_state_is_broken(act))",
        "if (false)"),
    "a locked grain serves others": (
        "grains/activation/lock.c", "    act->busy |= TEFFI_BUSY_LOCKED;\n", ""),
    "rows that were only read are not compared": (
        "grains/activation/participants.c",
        "    if (!one->row.len)\n        return;\n    b->n_writes",
        "    if (!one->row.len || !one->writes)\n        return;\n    b->n_writes"),
    "a silo that the root does not know yet is not told the outcome": (
        "grains/activation/participants.c", "    if (complete && silo_is_stranger(node, to))",
        "    if (false && complete && silo_is_stranger(node, to))"),
    "a silent root has not written": (
        "grains/activation/lock.c", "lock->must_resolve = lock->writes;",
        "lock->must_abort = true;"),
    "a silent root has written": (
        "grains/activation/lock.c", "    else if (!err)\n        lock->must_abort = true;\n",
        "    else if (!err)\n        teffi_lock_release(act);\n"),
    "a lock that was left stays until the deadline": (
        "grains/activation/lock.c", "return idle && older_transaction_waits(act, &lock->owner);",
        "return idle && false;"),
    "a lock watches the silo where its transaction began": (
        "grains/activation/transaction.c",
        "                transaction->runs_at = teffi_node_to_word(ctx->node->id);",
        "                (void)0;"),
    "a row that has changed is not read again": (
        "grains/activation/lock.c", "lock->reloads = end->step != TEFFI_STEP_ABORT;",
        "lock->reloads = false;"),
    "the root does not await its calls": (
        "grains/activation/transaction.c", "        teffi_await(ctx, &wait, 1);\n",
        "        if (!asked)\n            teffi_await(ctx, &wait, 1);\n"),
    "an error in a transaction may be ignored": (
        "grains/activation/transaction.c", "    if (lock->failed)\n        return teff_fail(",
        "    if (lock->failed > TEFF_E_MAX)\n        return teff_fail("),
    "an answer is not written with the transaction": (
        "grains/activation/turn.c", "        lock->writes = true;\n", ""),
    "a failure is no answer of a transaction": (
        "grains/activation/turn.c",
        "return counts ? roll_back_and_record_error(turn, hash, err) : err;",
        "return counts && !err ? roll_back_and_record_error(turn, hash, err) : err;"),
    "the row of a transaction that was not written has its answer": (
        "grains/activation/state.c", "err = pack_empty_state(ctx, act, false, &row->value);",
        "err = pack_empty_state(ctx, act, true, &row->value);"),
    "a younger request waits for the next owner of a lock": (
        "grains/activation/lock.c", "    more->judge_all = more->pending.count > 0;\n", ""),
    "the oldest entry of a participant counts": (
        "grains/activation/participants.c", "b->turn > a->turn", "b->turn < a->turn"),
    "an activation ends in a transaction": (
        "grains/hosting/handler.c",
        "act->running == 0 &&\n        !(act->busy & TEFFI_BUSY_LOCKED)) {",
        "act->running == 0) {"),
    "a client may be in a transaction": (
        "runtime/link/conn/receiver.c", " || msg->transaction)", ")"),
    "dead connections are freed when there are 17": (
        "runtime/link/conn/connection.h", "LINK_DEAD_BATCH = 16", "LINK_DEAD_BATCH = 17"),
    "only a scan frees dead connections": (
        "runtime/link/heartbeat.c",
        "    teffi_driver_free_dead_conns(link);\n    bool reads", "    bool reads"),
    "a dropped call takes no part": (
        "runtime/call/ctx_calls.c", "!impl->in_ctx.le_prev || must_keep_call(ctx, impl))",
        "!impl->in_ctx.le_prev)"),
    "a full queue refuses the end of a transaction": (
        "grains/activation/activation.c", " || teffi_msg_ends_transaction(msg))", ")"),
    "a cleared state is written in a transaction": (
        "grains/activation/participants.c", "bool removes = lock->removes &&",
        "bool removes = false &&"),
    "a call from a transaction waits for itself": (
        "grains/activation/lock.c", "        return TEFF_E_INVALID;\n",
        "        return TEFF_OK;\n"),
    "a plain call in a transaction waits for an older one": (
        "grains/activation/lock.c", "transaction.step != TEFFI_STEP_ROOT",
        "transaction.step == TEFFI_STEP_ROOT"),
    "a caller that does not know a method as transactional joins it": (
        "grains/hosting/handler.c", "transaction.step == TEFFI_STEP_PLAIN);",
        "transaction.step == TEFFI_STEP_RESOLVE);"),
    "a turn that is suspended in place forgets its transaction": (
        "grains/activation/turn.c",
        "        (void)!teffi_transaction_write_to_msg(turn->request, &transaction);\n",
        "        (void)transaction;\n"),
    "a grain of unknown outcome ends with its changes": (
        "grains/activation/lock.c", "    teffi_state_restore(s->act, s->row->etag ?",
        "    (void)(s->row->etag ?"),
    "a root that ends in its middle is silent": (
        "grains/activation/transaction.c", "    if (is_root)\n        start_sending_outcome",
        "    if (is_root && err == TEFF_OK)\n        start_sending_outcome"),
    "a root that ends in its middle has not written": (
        "grains/activation/transaction.c",
        "lock->submitted ? TEFFI_STEP_RESOLVE : TEFFI_STEP_ABORT", "TEFFI_STEP_ABORT"),
    "a transaction that begins again has an answer": (
        "grains/activation/turn.c", "own && own != TEFF_E_ABORTED &&", "own &&"),
    "a batch of unknown outcome was not written": (
        "grains/activation/participants.c", "return all_written ? TEFF_OK : TEFF_E_UNKNOWN;",
        "return TEFF_E_IO;"),
    "a timer ticks again before its tick has ended": (
        "grains/activation/timers.c", "    timer->ticks = true;\n",
        "    if (timer->period_ms)\n        arm_timer(timer, timer->period_ms);\n"),
    "a timer stays when its activation ends": (
        "grains/hosting/handler.c",
        "        act->phase = TEFFI_DEACTIVATING;\n        teffi_timers_stop_all(act);\n",
        "        act->phase = TEFFI_DEACTIVATING;\n"),
    "the period of a timer begins with its tick": (
        "grains/activation/timers.c", "        arm_timer(timer, timer->next_ms);\n",
        "        timer->due_ns += timer->next_ms * 1000000ull, set_exec_timer(timer);\n"),
    "ticks go before requests, always": (
        "grains/activation/timers.c", "    timers_of(timer->act)->requests_first = true;\n", ""),
    "ticks keep an idle activation": (
        "grains/activation/timers.c", "    if (timer->keep_alive)\n", ""),
    "a tick does not wait for a transaction": (
        "grains/activation/timers.c",
        "timers_of(act)->due_of[class] > 0 && teffi_activation_admits(act, class)",
        "timers_of(act)->due_of[class] > 0"),
    "a transaction does not see that a silo was started again": (
        "grains/activation/participants.c", "    if (b->silo_has_changed)\n", "    if (false)\n"),
    "a transaction takes the same of another for its own": (
        "grains/activation/participants.c", "one->writes && !one->removes)",
        "one->writes && !one->removes && !one->row.len)"),
    "an observer is slow one notification later": (
        "grains/silo/observer.c", "o->n_waiting >= TEFF_OBSERVER_QUEUE_MAX",
        "o->n_waiting > TEFF_OBSERVER_QUEUE_MAX"),
    "a grain takes one observer more": (
        "grains/activation/observers.c",
        "    if (!s && sets && sets->n >= TEFF_OBSERVERS_MAX)\n        return",
        "    if (!s && sets && sets->n > TEFF_OBSERVERS_MAX)\n        return"),
    "a subscription without a time expires earlier": (
        "grains/activation/observers.c", "expiry_ms ? expiry_ms : TEFF_OBSERVER_EXPIRY_MS",
        "expiry_ms ? expiry_ms : TEFF_OBSERVER_EXPIRY_MS - 1"),
    "a slow observer is not told": (
        "grains/activation/observers.c", "    if (why != TEFF_DROPPED_GONE &&",
        "    if (why > TEFF_DROPPED_SLOW &&"),
    "a bounce drops whoever has the place of its subscription now": (
        "grains/activation/observers.c", "    if (s && s->number == head.subscription)",
        "    if (s)"),
    "a gap after a broken connection is not told": (
        "grains/activation/observers.c", "    return s->breaks != breaks;", "    return false;"),
    "a broken connection counts before anything was sent": (
        "grains/activation/observers.c", "    if (!s->sent)\n", "    if (false)\n"),
    "the end of an activation is not told": (
        "grains/hosting/handler.c", "    teffi_observers_end_all(act);",
        "    teffi_observers_discard_all(act);"),
    "a client removes the observers of others": (
        "grains/hosting/notices.c", "has_valid_tag(node->grains, msg->src, head)",
        "(true || has_valid_tag(node->grains, msg->src, head))"),
    "a bounce goes to a client": (
        "grains/hosting/notices.c", "head->slot && !is_client(to)", "head->slot"),
    "strangers notify": (
        "grains/hosting/notices.c",
        "(standing == TEFFI_STANDING_MEMBER || standing == TEFFI_STANDING_LEFT)", "standing < 9"),
    "a notification reaches any method with its id": (
        "grains/request/notify.c", "own && strcmp(own->name, method->name) == 0", "own"),
    "a client notifies": (
        "runtime/link/conn/receiver.c", "msg->to.slot == TEFFI_SLOT_OBSERVER && !msg->type_id;",
        "msg->to.slot == TEFFI_SLOT_OBSERVER;"),
    "any bytes are a seal": (
        "runtime/message/seal.c", "    return plain.zero == 0;", "    return true;"),
    "the gateway of a reference may be a client": (
        "runtime/message/notice.c", "!client->gateway || client_bit ? 0", "!client->gateway ? 0"),
    "the gateway of a reference may be nobody": (
        "runtime/message/notice.c", "!client->gateway || client_bit ? 0", "client_bit ? 0"),
    "a client that loses its gateway is not told": (
        "grains/silo/gateways.c",
        "    teffi_client_observers_lose_gateway(client, peer->node);\n", ""),
    "a reference is stored though its gateway may be gone": (
        "grains/silo/observer.c", "    if (observers->losses != made->losses)\n",
        "    if (false)\n"),
    "a pool may have any number of activations": (
        "grains/directory/stateless.h", "TEFFI_POOL_MAX = 64", "TEFFI_POOL_MAX = 6400"),
    "a pool with one activation for each worker has one": (
        "grains/directory/stateless.c", ": grains->node->home.exec->workers;", ": 1;"),
    "equal queues give all requests to one activation": (
        "grains/directory/stateless.c", "= platform->random(platform->arg);",
        "= 0 * platform->random(platform->arg);"),
    "a suspended activation is never searched again": (
        "grains/hosting/handler.c", "(uint8_t)~TEFFI_SUSPENDED,", "(uint8_t)~0,"),
    "an activation of a stateless worker is in its owner's directory": (
        "grains/directory/shard.c", "registered && !teffi_type_is_stateless(type)",
        "registered"),
    "a call in place joins a suspended turn of a stateless worker": (
        "grains/request/direct.c", "    if (act && act->running && ask->",
        "    if (false && ask->"),
    "a request for a stateless worker waits for the directory": (
        "grains/request/route.c", "    if (grains->closed || (type && ",
        "    if (true || (type && "),
    "an option gives a pool any number of activations": (
        "codegen/model/options.c", "#define POOL_MAX 64 ", "#define POOL_MAX 640 "),
    "a caller makes any type a stateless worker": (
        "grains/request/route.c", "if (type && !teffi_type_is_stateless(type))", "if (false)"),
    "a response for which a client has no room is dropped": (
        "runtime/link/next_hop.c", "to.silo & TEFFI_CLIENT_BIT;\n    if (",
        "to.silo & 0;\n    if ("),
    "a message does not carry its sender's view": (
        "runtime/link/conn/sender.c", "    if (!append_view_if_new(conn, copied_max) || ",
        "    if ("),
    "a heartbeat does not carry its sender's view": (
        "runtime/link/conn/sender.c",
        "    if (conn->sender.open && conn->sender.closing != SENDER_CLOSED)",
        "    if (false)"),
    "a peer that does not know VIEW frames gets them": (
        "runtime/link/conn/sender.c", " && remote->version_max >= TEFFI_PROTOCOL_VIEW", ""),
    "a newer view of a peer is no reason to read the table": (
        "runtime/cluster/follow.c",
        "    if (version <= teffi_membership_version(node))\n        return;", "    return;"),
    "a refresh for a peer's view does not ask whether the table has a newer one": (
        "runtime/cluster/follow.c", "doubted ? 0 : heard", "heard"),
    "what a dead peer has sent is reported": (
        "runtime/link/driver.c", "    if (atomic_load_explicit(&conn->barred,",
        "    if (false && atomic_load_explicit(&conn->barred,"),
    "a task that has a tick counts for the next": (
        "grains/reminder/schedule.c", "all->tasks - all->ticking >= count", "all->tasks >= count"),
    "tries again of ticks take all room": (
        "grains/reminder/schedule.c", "RETRYING_MAX = TEFFI_REMINDER_TICKS_MAX / 2",
        "RETRYING_MAX = TEFFI_REMINDER_TICKS_MAX"),
    "a limited wait begins anew with each load": (
        "grains/reminder/schedule.c", "(later && !limited)", "later"),
    "the type's filters run before the silo's": (
        "grains/activation/filter.c",
        "!teffi_filters_add(&filters, silo) || !teffi_filters_add(&filters, type->filters)",
        "!teffi_filters_add(&filters, type->filters) || !teffi_filters_add(&filters, silo)"),
    "a filter that refuses a call is ended, too": (
        "grains/activation/filter.c",
        "        if (err)\n            return make_valid_filter_error(",
        "        if (err && ++run->begun)\n            return make_valid_filter_error("),
    "filters run though an earlier one has answered": (
        "grains/activation/filter.c",
        " && !run->call.answered) {\n        const", ") {\n        const"),
    "the method begins though its caller has left in a filter": (
        "grains/activation/filter.c", "        err = check_caller_waits(grain->ctx);",
        "        err = false ? check_caller_waits(grain->ctx) : TEFF_OK;"),
    "a filter's refusal is stored as the answer to a key": (
        "grains/activation/filter.c", "    turn->not_run = err != TEFF_OK;",
        "    turn->not_run = false;"),
    "a filter's refusal of a root is stored as the answer to a key": (
        "grains/activation/turn.c", " && !turn->not_run && !lock->failed", " && !lock->failed"),
    "a root that a filter has refused has an answer if after forgives": (
        "grains/activation/turn.c", "!err && once && !turn->not_run", "!err && once"),
    "a state that a filter has saved is only written with an answer": (
        "grains/activation/state.c", "            act->stored->answers->unsaved = true;", ""),
    "a timeout that before sets stays": (
        "grains/activation/filter.c", "        run->call.ctx->timeout_ms = timeout_ms;",
        "        (void)timeout_ms;"),
    "a timeout that after sets stays": (
        "grains/activation/filter.c", "    call->ctx->timeout_ms = timeout_ms;\n    return err &&",
        "    (void)timeout_ms;\n    return err &&"),
    "an outgoing filter sees the response of an after that has failed": (
        "grains/activation/filter.c", "if (err && run->outgoing)", "if (err && !run)"),
    "a transaction commits though a filter has refused a call in it": (
        "grains/request/outgoing.c", "    return err && run->call.kind == TEFF_CALL_REQUEST\n",
        "    return err && run->call.kind == TEFF_CALL_TICK\n"),
    "a one-way message that a filter refuses rolls a transaction back": (
        "grains/request/outgoing.c", "    return err && run->call.kind == TEFF_CALL_REQUEST\n",
        "    return err\n"),
    "a transaction commits though a call in it had no memory for its filters": (
        "grains/request/outgoing.c",
        "        return record_call_begin_error(\n            ctx, method,",
        "        return (\n           "),
    "outgoing filters get no request where the method has one": (
        "grains/request/outgoing.c", "!in && method->in ? &no_filters",
        "!in && !method->in ? &no_filters"),
    "the text of a key is read though its kind has none": (
        "grains/request/outgoing.c", "teffi_key_kind_has_text(key->kind) && key->text",
        "key->text"),
    "an empty response ends with the memory of the first await": (
        "grains/request/outgoing.c", "        empty ? empty : teff_arena_alloc",
        "        empty && !method->out ? empty : teff_arena_alloc"),
    "calls of a filter are filtered after it has awaited one of its caller": (
        "grains/request/outgoing.c", "    ctx->filters = before;",
        "    ctx->filters = before && false;"),
    "the first error of several calls ends the wait for all": (
        "grains/request/reference.c", "        first = err;\n", "        return err;\n"),
    "of several errors the last one counts": (
        "grains/request/reference.c", "        if (!err || first)", "        if (!err)"),
    "a filter may turn an error into a response that is half made": (
        "grains/activation/filter.c", "        if (err && out)", "        if (err && !out)"),
    "the filters of a call run at each await": (
        "grains/request/outgoing.c", "    if (!filtered->ended) {", "    {"),
    "notifications to grains meet outgoing filters": (
        "grains/request/notify.c", "    ctx->filters = true;", ""),
    "a tick overlaps with its next try": (
        "grains/reminder/remind.c", "name, name) == 0)\n            return true;",
        "name, name) == 0)\n            return false;"),
    "each load puts off the reload": (
        "grains/reminder/schedule.c", "    if (ok) {\n",
        "    if (ok) {\n        all->reload_ns = choose_reload_ns(all);\n"),
    "the code of a killed silo goes on": (
        "grains/testing/cluster.c", "    (void)teffi_lease_end(&p->silo->node.home.lease);\n", ""),
    "a silo that has lost its lease is reached": (
        "grains/testing/cluster.c", "p->lost = p->node.dead = true;", "p->lost = true;"),
    "a wait that was left ends a later one": (
        "grains/testing/cluster.c", "(uintptr_t)arg == cluster->wait",
        "(uintptr_t)arg <= cluster->wait"),
    "a very long wait ends at once": (
        "grains/testing/cluster.c", "(ms < WAIT_MAX_MS ? ms", "(ms != WAIT_MAX_MS ? ms"),
    "a wait runs in a wait": (
        "grains/testing/cluster.c", "if (cluster->wait != wait)", "if (cluster->wait < wait)"),
    "a client connects in a turn": (
        "grains/testing/cluster.c", "    abort_if_on_fiber(\"teff_testing_connect\");\n", ""),
    "a cluster is made in a turn": (
        "grains/testing/cluster.c", "    abort_if_on_fiber(\"teff_testing_new\");\n", ""),
    "threads share the group that runs": (
        "grains/testing/sim_exec.c", "static _Thread_local teffi_group *running;",
        "static teffi_group *running;"),
    "a pair that is cut reaches each other": (
        "grains/testing/cluster.c", "    return !a || !b || !a->apart[b->no];",
        "    return a || !a || b;"),
    "healing leaves a pair cut": (
        "grains/testing/cluster.c", "        memset(p->apart, 0, sizeof p->apart);\n", ""),
    "healing leaves the rates of faults": (
        "grains/testing/cluster.c", "    (void)!teff_testing_set_faults(cluster, NULL);\n", ""),
    "a message under way is no work": (
        "grains/testing/cluster.c", ": e->fn != set_wait_due;", ": false;"),
    "connections break at no rate": (
        "grains/testing/sim_net.c", "s->faults.wire_breaks) && may_cut", "0) && may_cut"),
    "messages take no given time": (
        "grains/testing/sim_wire.c", "    if (s->faults.wire_max_ns)", "    if (false)"),
    "operations of the store fail at no rate": (
        "grains/testing/sim_store.c", "s->faults.store_failed)) {", "0)) {"),
    "a silo dials for ever those that died before it joined": (
        "runtime/cluster/reach.c",
        "    if (!teffi_view_current_has_member(node, c->member.node))\n", "    if (false)\n"),
}
