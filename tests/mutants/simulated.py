# simulated.py - bugs of the product that the simulator must find: errors that a programmer could
# make in the cluster, the directory, activations, calls, states. `make mutants ARGS=--simulator`.
#
# name: source, text that stands there exactly once, and what takes its place.
#
# The simulator does not look for requests that run after their deadline or for requests that reach
# a silo which passes them on: there is no row for bugs of these kinds.

SIMULATED = {
    # ---- the lease and the heartbeat ----
    "a silo that cannot reach its store serves without limit": (
        "runtime/cluster/rows.c", "    if (!err)\n        teffi_lease_renew(",
        "    (void)err;\n        teffi_lease_renew("),
    "a paused silo serves until its next look at the table": (
        "runtime/call/lease.h", "return (int32_t)((uint32_t)(until_ns / 1000000) - now_ms) > 0;",
        "return true;"),
    "a request that was set aside starts without a lease": (
        "grains/hosting/handler.c",
        "        if (end_if_late_or_cancelled(act, msg) || refuse_if_lease_is_over(act, msg))\n"
        "            continue;",
        "        if (end_if_late_or_cancelled(act, msg))\n            continue;"),
    "a turn resumes without a lease": (
        "runtime/call/wait.c",
        "    if (ctx->owner && !teffi_lease_holds_coarse(",
        "    if (false && !teffi_lease_holds_coarse("),
    "a silo is dead before its lease is over": (
        "runtime/cluster/heartbeat.c", "SILENT_PERCENT = 150, BROKEN_PERCENT = 105",
        "SILENT_PERCENT = 75, BROKEN_PERCENT = 55"),
    "a silo whose workers are stuck stays": (
        "runtime/cluster/lease.c", "if (s->still_ns < s->limit_ns)",
        "if (s->still_ns <= UINT64_MAX)"),
    "a stop waits for stuck turns without a limit": (
        "grains/hosting/install.c",
        "        if (teffi_now(grains->node->platform) >= deadline_ns)\n"
        "            return teff_fail(ctx, TEFF_E_TIMEOUT, \"%llu activations",
        "        if (deadline_ns == 0)\n"
        "            return teff_fail(ctx, TEFF_E_TIMEOUT, \"%llu activations"),
    "a silo leaves while its turns may still answer": (
        "grains/silo/lifecycle.c", "    if (ended)\n        (void)teffi_lease_end(",
        "    if (ended && false)\n        (void)teffi_lease_end("),
    "a joiner ousts a healthy cluster": (
        "runtime/cluster/watch.c",
        "    uint64_t between = w->looked_ns ? now - w->looked_ns : 0;\n"
        "    w->still_ns = w->etag == alive->etag ? w->still_ns + "
        "(between < most ? between : most) : 0;",
        "    (void)most;\n"
        "    w->still_ns = !w->etag || w->etag == alive->etag ? w->still_ns + "
        "now - w->looked_ns : 0;"),
    "silos that do not reach each other both stay": (
        "runtime/cluster/reach.c", "    teff_err err = n ? judge_and_act(",
        "    teff_err err = n > TEFFI_WATCHED_MAX ? judge_and_act("),
    "an incarnation is the clock's alone": (
        "runtime/cluster/join.c", "if (last >= node->id.incarnation)", "if (false)"),
    "a silo is dead although promises extend its lease": (
        "runtime/cluster/heartbeat.c", "        any |= silent->of[i].needs_consent;\n",
        "        any |= false, silent->of[i].needs_consent = false;\n"),
    "a consent in spite of a promise": (
        "runtime/cluster/promise.c",
        "bool given = at && at->until_ns <= teffi_now(m->node->platform);",
        "bool given = at != NULL;"),
    # ---- views ----
    "a change of the table does not compare its version": (
        "runtime/cluster/rows.c", "                          .etag = read->version_etag,\n",
        "                          .any = true,\n"),
    "a message of a silo that the view calls dead is taken": (
        "runtime/cluster/follow.c",
        "            net->ops->peer_dead(net, member->node);\n        else",
        "            (void)0;\n        else"),
    "frames carry an older view than their sender's": (
        "runtime/cluster/follow.c",
        "        node->home.net->ops->carry_view(node->home.net, view->version);",
        "        (void)0;"),
    # ---- the directory ----
    "a recovery leaves out a silo that it cannot reach": (
        "grains/directory/recover.c", "            err = recover_from_silo(ctx, r, member);",
        "            (void)!recover_from_silo(ctx, r, member);"),
    "a recovery takes a response for another view": (
        "grains/directory/recover.c", "if (response->view != ask->view)",
        "if (response->view < ask->view)"),
    "a new owner does not lock the partition": (
        "grains/directory/partition.c", "shard->phase = TEFFI_LOCKED;\n        shard->since",
        "shard->phase = TEFFI_SERVING;\n        shard->since"),
    "a partition between silos leaves the directory locked": (  # it waits for a newer view
        "grains/directory/recover.c",
        "    teffi_membership_await_change(ctx, seen, r->failed + TRIES_BEFORE);\n",
        "    while (teffi_membership_version(ctx->node) == r->view->version && !grains->closed)\n"
        "        teffi_membership_await_change(ctx, "
        "grains->node->membership->follow.changes.count, 9);\n"
        "    (void)seen;\n"),
    "a registration that a new view overtakes is not repeated": (
        "grains/directory/client.c", "while (!view_is_current(ctx->node, a.view));",
        "while (false && !view_is_current(ctx->node, a.view));"),
    "an entry of a silo that is gone stays": (
        "grains/directory/partition.c",
        ": teffi_view_current_has_member(grains->node, e->pid.node)))",
        ": true))"),
    # ---- reminders ----
    "a tick does not compare the row": (
        "grains/reminder/remind.c",
        "return row->etag && value->id == in->id && value->next_ms == in->next_ms",
        "return row->etag || in->id"),
    "a tick that was delivered stays in the row": (
        "grains/reminder/remind.c", "value->next_ms = in->after_ms;",
        "value->next_ms = in->next_ms;"),
    "the reminders of a partition that was gained are not loaded": (
        "grains/reminder/schedule.c", "else if (phase == TEFFI_SERVING && ",
        "else if (phase > TEFFI_SERVING && "),
    # ---- activations ----
    "the loser of a race drops its queue": (
        "grains/hosting/handler.c", "        teffi_route_to_current_holder(grains, msg, winner);",
        "        teffi_msg_free(msg);"),
    "an activation that ends drops what waits": (
        "grains/hosting/handler.c",
        "        fail_or_reroute_request(act, teffi_container(n, teffi_msg, link));",
        "        teffi_msg_free(teffi_container(n, teffi_msg, link));"),
    "a writer starts beside a reader": (
        "grains/activation/admission.h",
        "    return running_of[TEFFI_EXCLUSIVE] == 0 &&\n"
        "           (c == TEFFI_READ_ONLY || running_of[TEFFI_READ_ONLY] == 0);",
        "    return running_of[TEFFI_EXCLUSIVE] == 0;"),
    "a leaving silo does not wait for what it received": (
        "grains/silo/lifecycle.c",
        "    return pick_first_error(err, wait_until_quiet(ctx, deadline_ns));",
        "    return err;"),
    # ---- states ----
    "a write with an unknown outcome counts as done": (
        "grains/activation/state.c", "    if (err == TEFF_E_UNKNOWN) {\n        stored->unsure",
        "    if (err == TEFF_E_UNKNOWN)\n        err = TEFF_OK;\n"
        "    if (err == TEFF_E_UNKNOWN) {\n        stored->unsure"),
    "a state that cannot be read is an empty one": (
        "grains/activation/state.c",
        "    teff_err err = read_state_row_when_allowed(ctx, act, &row);\n    if (err)",
        "    teff_err err = read_state_row_when_allowed(ctx, act, &row);\n"
        "    if (err && err != TEFF_E_UNKNOWN)"),
    # ---- calls ----
    "calls do not end with their link": (
        "runtime/node/events.c",
        "    if (peer->role != TEFFI_ROLE_CLIENT)\n        teffi_node_send_outcomes",
        "    if (peer->role != TEFFI_ROLE_CLIENT && clean)\n        teffi_node_send_outcomes"),
    "a call that may have run ends as one that did not": (
        "runtime/call/calls.c", 'TEFF_E_UNREACHABLE,\n                        "the link broke',
        'TEFF_E_UNAVAILABLE,\n                        "the link broke'),
    "a cancelled request runs": (
        "grains/hosting/handler.c",
        "return teffi_cancel_is_any_kept(&node->home) && drop_if_cancelled(act, msg);",
        "return false;"),
    # ---- transactions ----
    "a transaction waits for an older one": (
        "grains/activation/lock.c",
        "    return dies || (is_new && older_transaction_waits(act, transaction)) ? TEFFI_DIE",
        "    return false && (dies || (is_new && older_transaction_waits(act, transaction))) ? "
        "TEFFI_DIE"),
    "a transaction that fails leaves the state as it is": (
        "grains/activation/lock.c",
        "        teffi_state_restore(act, (teffi_bytes){lock->before, lock->before_len});",
        "        (void)0;"),
    "a locked grain serves requests outside of the transaction": (
        "grains/activation/activation.h", "!act->reason && !act->busy &&",
        "!act->reason && !(act->busy & ~TEFFI_BUSY_LOCKED) &&"),
    "a transaction does not compare the rows that it has only read": (
        "grains/activation/participants.c", "    if (!one->row.len)\n        return;",
        "    if (!one->row.len || !one->writes)\n        return;"),
    "a participant does not read the row that may have been written": (
        "grains/activation/lock.c",
        "        teffi_state_mark_lost_and_deactivate(act);\n    teffi_lock_release(act);",
        "        teffi_lock_roll_back_and_release(act);\n    teffi_lock_release(act);"),
    "a transaction begins again as the same attempt": (
        "grains/activation/transaction.c", "    transaction.attempt++;\n", ""),
    "the participants of a call that has failed are not told": (
        "grains/activation/turn.c", "    if (joins)\n        attach_participants",
        "    if (joins && !err)\n        attach_participants"),
    "only one of two activations of a grain is told": (
        "grains/activation/participants.c",
        " && same_silo(all->list[k], all->list[i])))",
        " && (true || same_silo(all->list[k], all->list[i]))))"),
    "a transaction is written without the answer to its key": (
        "grains/activation/turn.c",
        "        record_answer(turn, hash, err, *out);\n        lock->writes = true;",
        "        lock->writes = true;"),
    "a batch with an unknown outcome counts as not written": (
        "grains/activation/participants.c", "        err = read_batch_outcome(ctx, b);",
        "        err = b->n ? TEFF_E_IO : read_batch_outcome(ctx, b);"),
    "an activation ends in the middle of a transaction": (
        "grains/hosting/handler.c",
        "act->running == 0 &&\n        !(act->busy & TEFFI_BUSY_LOCKED)) {",
        "act->running == 0) {"),
    "an activation that ends keeps what its transaction has queued": (
        "grains/hosting/handler.c", "(!act->reason || teffi_lock_of(act)))", "!act->reason)"),
    "a call that could not begin does not end its transaction": (
        "grains/request/reference.c", "    if (err && ctx->transaction)",
        "    if (false && ctx->transaction)"),
    "a silo that leaves does not wait for transactions that begin again": (
        "grains/silo/lifecycle.c",
        "           !teffi_transaction_tasks_pending(node->grains) &&\n",
        ""),
    "a renewed subscription is added again": (
        "grains/activation/observers.c", "info, ref);\n    if (s && gateway",
        "info, (ProtobufCBinaryData){0, NULL});\n    if (s && gateway"),
    # ---- last, as they need several faults at once; some need thousands of seeds ----
    "the lease counts from the store's response": (
        "runtime/cluster/rows.c", "teffi_lease_renew(&ctx->home->lease, beat->sent_ns);",
        "teffi_lease_renew(&ctx->home->lease, teffi_now(ctx->node->platform));"),
    "a save without the fence": (
        "grains/activation/state.c", ".n_rows = rows[1].etag ? 2 : 1,", ".n_rows = 1,"),
    "the end of a transaction counts for each of its attempts": (
        "grains/activation/lock.c", " ||\n        lock->owner.attempt != end->attempt)", ")"),
    "a participant forgets a silent transaction, and the row stays": (
        "grains/activation/lock.c", "    lock->must_abort |= !lock->writes;",
        "    lock->must_abort = true;"),
    "a transaction is written without fences": (
        "grains/activation/participants.c",
        "    if (fence && !found)\n        add_row(b, NULL, row);",
        "    if (fence && !b)\n        add_row(b, NULL, row);"),
    "a silo that leaves does not tell those that left before": (
        "runtime/cluster/join.c", "teffi_membership_push_view(ctx, true);",
        "teffi_membership_push_view(ctx, false);"),
    "an activation begins without a lease": (
        "grains/hosting/life.c",
        "    if (!teffi_lease_holds_coarse(&act->grains->node->home.lease, act->group.exec)) {",
        "    if (false) {"),

    # ---- the limit of activations, and delays ----
    "a request ends the delay of its activation": (
        "grains/activation/activation.h", "used - now > TEFFI_DELAY_MAX_MS", "true || used"),
    "a silo has activations without limit": (
        "grains/directory/shard.h", "return max && n >", "return false && n >"),

    # ---- stateless workers ----
    "a pool has one activation too many": (
        "grains/directory/stateless.c",
        "    if (!p.idle && p.n < teffi_pool_max(grains, type->info))\n        err =",
        "    if (!p.idle && p.n <= teffi_pool_max(grains, type->info))\n        err ="),
    "activations of stateless workers are registered": (
        "grains/hosting/life.c", "teffi_type_is_stateless(act->type) || teffi_activation_is_reg",
        "teffi_activation_is_reg"),
    "a request is pushed to an idle activation that stays claimed": (
        "grains/directory/stateless.c",
        "        err = teffi_activation_push(act, type, msg, &deep);\n"
        "    if (p.idle)\n        teffi_group_release_claim(&p.idle->group);",
        "        err = teffi_activation_push(act, type, msg, &deep);"),
    "a leaving silo drops requests for its stateless workers": (
        "grains/request/route.c",
        "        teffi_placement_respond_error(grains, msg, newest);\n    else\n"
        "        locate_grain_again(grains, ident, msg);",
        "        teffi_placement_respond_error(grains, msg, newest);\n    else\n"
        "        teffi_msg_free(msg);"),
}
