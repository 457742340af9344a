/* call_trim.c - what a peak of pending calls has left behind goes back, a slice at a time.
 * Way:     timer -> batches that nobody needs -> their blocks -> whole ones -> the system
 * Threads: the table's lock is held for a batch or a row of blocks; neither memory that was not
 *          touched for long is walked under it, nor the kernel called. */
#include "node/call_trim.h"

#include "node/call.h"
#include "node/node.h"

enum { MS = 1000000 };

static teffi_exec *exec_of(const teffi_call_table *table)
{
    return table->space.node->exec;
}

static uint64_t now_of(const teffi_call_table *table)
{
    return teffi_now(exec_of(table)->platform);
}

/* ---- under the lock ---- */

static void set(teffi_call_table *table, uint64_t due_ns)
{
    teffi_exec *exec = exec_of(table);
    table->trim.set = true;
    exec->ops->timer_set(exec, &table->trim.timer, due_ns);
}

/* More than a few, or a few that may hold a block each. */
static bool has_more(const teffi_call_table *table)
{
    return table->n_batches > TEFFI_CALL_KEEPS ||
           (table->n_batches && table->space.n[TEFFI_CALL_SOME] > TEFFI_CALL_KEEPS);
}

static bool has_work(const teffi_call_table *table)
{
    return table->trim.spare || table->space.n[TEFFI_CALL_WHOLE] > TEFFI_CALL_KEEPS;
}

static void note(teffi_call_table *table, uint64_t now_ns)
{
    table->trim.looked_ns = now_ns;
    table->trim.low = table->n_batches;
}

void teffi_call_trim_look(teffi_call_table *table)
{
    if (table->trim.set || table->trim.never || !has_more(table))
        return;
    uint64_t now = now_of(table);
    note(table, now);
    table->trim.spare = 0;
    set(table, now + TEFFI_CALL_AGE_MS * (uint64_t)MS);
}

/* ---- a slice ---- */

static void begin(teffi_call_table *table, uint64_t now_ns)
{
    pthread_mutex_lock(&table->lock);
    if (now_ns - table->trim.looked_ns >= TEFFI_CALL_AGE_MS * (uint64_t)MS) {
        table->trim.spare = table->trim.low;
        note(table, now_ns);
    }
    pthread_mutex_unlock(&table->lock);
}

/* out: a batch that nobody has needed; NULL: there is none any more. */
static teffi_call *take(teffi_call_table *table)
{
    teffi_call_trim *trim = &table->trim;
    teffi_call *batch = NULL;
    pthread_mutex_lock(&table->lock);
    if (trim->spare > trim->low)
        trim->spare = trim->low;
    if (trim->spare) {
        batch = teffi_call_spare(table);
        trim->spare--;
    }
    pthread_mutex_unlock(&table->lock);
    return batch;
}

static bool lay_one(teffi_call_table *table)
{
    teffi_call_lot lot = {0};
    teffi_call *call = take(table);
    if (!call)
        return false;
    for (; call; call = call->next, lot.n++) {
        lot.slots[lot.n] = call->slot;
        lot.generations[lot.n] = teffi_call_last(call);
    }
    pthread_mutex_lock(&table->lock);
    teffi_call_space_lay(&table->space, &lot);
    pthread_mutex_unlock(&table->lock);
    return true;
}

/* out: blocks that are given back. */
static uint32_t forget_some(teffi_call_table *table)
{
    pthread_mutex_lock(&table->lock);
    teffi_call_run run = {0, 0};
    if (!table->trim.never)
        run = teffi_call_space_claim(&table->space, TEFFI_CALL_KEEPS);
    pthread_mutex_unlock(&table->lock);
    if (!run.n)
        return 0;
    bool forgotten = teffi_call_space_forget(&table->space, run);
    pthread_mutex_lock(&table->lock);
    teffi_call_space_return(&table->space, run, forgotten);
    table->trim.never |= !forgotten;
    pthread_mutex_unlock(&table->lock);
    return run.n;
}

static void rest(teffi_call_table *table)
{
    pthread_mutex_lock(&table->lock);
    bool go_on = !table->trim.never;
    if (go_on && has_work(table))
        set(table, now_of(table)); /* with the wheel's next tick, after what else is due */
    else if (go_on && has_more(table))
        set(table, table->trim.looked_ns + TEFFI_CALL_AGE_MS * (uint64_t)MS);
    else
        table->trim.set = false;
    pthread_mutex_unlock(&table->lock);
}

static void fire(teffi_timer *timer)
{
    teffi_call_table *table = teffi_container(timer, teffi_call_table, trim.timer);
    uint64_t from = now_of(table), until = from + TEFFI_CALL_TRIM_US * (uint64_t)1000;
    begin(table, from);
    for (int i = 0; i < TEFFI_CALL_TRIM_SLICE && lay_one(table); i++)
        if (now_of(table) >= until)
            break;
    for (uint32_t n = 0, more = 1; more && n < TEFFI_CALL_TRIM_SLICE; n += more)
        more = forget_some(table);
    rest(table);
}

/* ---- */

void teffi_call_trim_init(teffi_call_table *table)
{
    table->trim.timer.fire = fire;
}

void teffi_call_trim_stop(teffi_call_table *table)
{
    pthread_mutex_lock(&table->lock);
    table->trim.never = true;
    pthread_mutex_unlock(&table->lock);
}
