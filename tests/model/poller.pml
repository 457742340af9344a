/* poller.pml - who waits in the poller, runtime/sched/{poll,idle,monitor}.c and the parker of
 * runtime/os/thread.c: is an event ever left unread, or work left while a worker sleeps?
 * Two workers, the monitor, a thread that polls when it is asked to (neglected), and an event,
 * which makes work or does not (a part of a message). Beside it, either work is pushed from
 * outside, or a parked worker loses its processor, to a borrower or because it is used no more, and
 * gets it back while it still waits in the poller or handles the event. Each worker may stay in a
 * turn for ever.
 * Or the cores are contended: while as many workers as wake_below run, no other one is woken, and one
 * that parks leaves the poller alone. A borrower counts as running. The monitor exempts workers that
 * stay in a turn. If there is only the event, it may also lift the limit, as a trial does; and no
 * processor is UNUSED.
 * Checked when nothing can happen any more: unless all workers are stuck, a parked worker waits in
 * the poller, or one that has lost its processor does.
 * One step per atomic operation; states, and what the monitor reads, are guarded by idle_lock. A
 * tick of the monitor that would change nothing is left out. How searching workers stand in for
 * wake-ups is park.pml's question: here each push wakes a parked worker, unless enough are running.
 * If two workers that park leave the poller to each other, the monitor's next tick wakes one: that
 * costs time only, so the model does not tell. */

#define WORKERS 2
#define NOBODY WORKERS
#define TICKER (WORKERS + 1)

#define LIMIT 1                /* of running workers, without those that stay in a turn */
#define NO_LIMIT (WORKERS + 1) /* more than can run */

#define TOKEN 1
#define POLLING 2

mtype = { RUNNING, PARKED, SPARE };
mtype = { HELD, BORROWED, UNUSED };

mtype state[WORKERS] = RUNNING;
mtype processor = HELD;   /* the one that may be taken */
byte word[WORKERS];       /* parkers */
byte claimer = NOBODY;    /* poller.claimed */
byte polling = NOBODY;    /* the worker that waits in the poller or handles its events */
bool woken;               /* the eventfd */
byte arrived, kept;       /* events */
byte using;               /* threads that do what only the claimer may do */
byte work;                /* in the global queue */
bool waited;              /* since the monitor's last tick */
bool awake = true;        /* the monitor */
bool asked;               /* neglected was called */
byte stuck, taken;
byte wake_below = NO_LIMIT;
bool may_lift;            /* the monitor, once */

#define IS_PARKED(i) (state[i] == PARKED)
#define NONE_PARKED (!IS_PARKED(0) && !IS_PARKED(1))
#define SLEEPS(i) (IS_PARKED(i) && polling != i)
#define RUNS(i) (state[i] == RUNNING || (state[i] == SPARE && processor == BORROWED))
#define ENOUGH (RUNS(0) + RUNS(1) >= wake_below)
#define RESTS(i) (IS_PARKED(i) || (state[i] == SPARE && processor == UNUSED))

/* Leave a token. Its waker writes to the eventfd in a later step. */
inline leave_token(i)
{
    atomic {
        writes = (word[i] == POLLING);
        word[i] = word[i] | TOKEN
    }
    if
    :: atomic { writes -> writes = false }
#ifndef MUTANT_WAKE_LOST
       woken = true
#endif
    :: atomic { !writes -> skip }
    fi
}

/* One that does not poll, if there is one; none if stop. in: i, the one that is woken, or NOBODY. */
inline wake_unless(stop, i)
{
    d_step {
        if
        :: stop || NONE_PARKED -> i = NOBODY
        :: else ->
            if
            :: SLEEPS(0) -> i = 0
            :: !SLEEPS(0) && SLEEPS(1) -> i = 1
            :: !SLEEPS(0) && !SLEEPS(1) && IS_PARKED(0) -> i = 0
            :: !SLEEPS(0) && !SLEEPS(1) && !IS_PARKED(0) -> i = 1
            fi
        fi;
        if
        :: i != NOBODY -> state[i] = RUNNING; awake = true
        :: else
        fi
    }
    if
    :: i != NOBODY -> leave_token(i); i = 0
    :: atomic { else -> i = 0 }
    fi
}

#define wake_parked(i) wake_unless(false, i)
#define wake_for_work(i) wake_unless(ENOUGH, i)

/* stop: to read it some steps before it claims would only let it claim more often. */
inline claim_unless(stop, self)
{
#ifdef MUTANT_TWO_POLLERS
    mine = (claimer == NOBODY && !(stop));
    if
    :: mine -> claimer = self
    :: else
    fi
#else
    d_step {
        mine = (claimer == NOBODY && !(stop));
        if
        :: mine -> claimer = self
        :: else
        fi
    }
#endif
}
#define claim(self) claim_unless(false, self)

inline keep_events()
{
    d_step {
        using++;
        assert(using == 1);
        woken = false;
        kept = kept + arrived;
        arrived = 0;
        using--
    }
}

/* What run() makes READY. own: in this worker's own queue. */
inline handle_kept()
{
    d_step { using++; assert(using == 1) }
    do
    :: atomic { kept > 0 -> kept-- } /* a part of a message */
    :: atomic { kept > 0 && has -> kept--; own++ }
    :: atomic { kept > 0 && !has -> kept--; work++ }
        wake_for_work(other)
    :: atomic { kept == 0 -> using--; break }
    od
}

proctype outside()
{
    bool writes;
    byte other;
    work++;
    wake_for_work(other)
}

proctype network()
{
    arrived++
}

/* A borrower or scale takes the processor of a parked worker, and gives it back: parked without a
 * wake-up (a borrower), or woken (scale). */
proctype taker()
{
    bool writes; byte other, from;
end_taker:
    atomic {
        taken == 0 && (IS_PARKED(0) || IS_PARKED(1)) ->
        taken = 1;
        if
        :: IS_PARKED(0) -> from = 0
        :: IS_PARKED(1) -> from = 1
        fi;
        state[from] = SPARE;
        awake = true;
        if
        :: processor = BORROWED
        :: wake_below == NO_LIMIT -> processor = UNUSED
        fi
    }
    if
    :: processor == BORROWED ->
        d_step { processor = HELD; state[from] = PARKED }
        if
        :: work > 0 -> wake_for_work(other)
        :: else
        fi
    :: processor == UNUSED ->
        d_step { processor = HELD; state[from] = RUNNING; awake = true }
        leave_token(from)
    :: processor == UNUSED -> /* for ever */
        if
        :: work > 0 -> wake_for_work(other)
        :: else
        fi
    fi
}

proctype ticker()
{
    bool mine, has;
    byte own;
    bool writes; byte other;
end_ticker:
    do
    :: asked ->
        asked = false;
        claim(TICKER);
        if
        :: mine ->
            keep_events();
            handle_kept();
            claimer = NOBODY
        :: else
        fi;
        mine = false
    od
}

#define NONE_WAITED (claimer == NOBODY && !waited)
#ifdef MUTANT_SLEEPS_BY_ANY_CLAIM
#define IS_POLLED (claimer != NOBODY)
#else
#ifdef MUTANT_SLEEPS_UNWATCHED
#define IS_POLLED true
#else
#define IS_POLLED (polling != NOBODY)
#endif
#endif
#define NONE_TO_WAKE (NONE_PARKED || ENOUGH)

/* After wake_below has been raised. */
inline announce()
{
    if
    :: work > 0 -> wake_for_work(other)
    :: else
    fi
}

proctype monitor()
{
    bool writes; byte other;
end_monitor:
    do
    :: d_step { awake && waited -> waited = false }
    :: awake && NONE_WAITED && !NONE_TO_WAKE -> wake_parked(other)
#ifndef MUTANT_STUCK_COUNTS_AS_RUNNING
    :: d_step { awake && wake_below < LIMIT + stuck -> wake_below = LIMIT + stuck }
        announce()
#endif
    :: d_step { awake && may_lift -> may_lift = false; wake_below = NO_LIMIT }
        announce()
#ifndef MUTANT_NEVER_ASKED
    :: d_step { awake && NONE_WAITED && NONE_TO_WAKE && !asked && arrived > 0 -> asked = true }
#endif
    :: d_step { awake && RESTS(0) && RESTS(1) && !NONE_PARKED && IS_POLLED -> awake = false }
    od
}

proctype worker(byte id)
{
    bool mine, has, found, sleeps;
    bool writes; byte other, own;

find:
    atomic {
        if
        :: own > 0 -> own--; goto turn
        :: own == 0 && work > 0 -> work--; goto turn
        :: own == 0 && work == 0 -> goto park
        fi
    }

turn:
    atomic {
        if
        :: stuck++; goto stays
        :: goto find
        :: arrived > 0 -> has = true
        fi
    }
    claim(id);
    if
    :: atomic { mine -> mine = false }
        keep_events();
        handle_kept();
        claimer = NOBODY
    :: else
    fi;
    has = false;
    goto find;

park:
#ifdef MUTANT_LOOK_BEFORE_ANNOUNCING
    found = work > 0;
    state[id] = PARKED;
#else
    state[id] = PARKED;
    found = work > 0;
#endif
    if
    :: found -> goto leave
    :: else
    fi;
    claim_unless(ENOUGH, id); /* after the store: of two that park, the second one claims */
    if
    :: mine -> d_step { polling = id; waited = true }
    :: else -> goto asleep
    fi;
#ifdef MUTANT_TOKEN_IGNORED
    d_step { sleeps = true; word[id] = POLLING }
#else
    d_step {
        sleeps = (word[id] == 0);
        if
        :: sleeps -> word[id] = POLLING
        :: else
        fi
    }
#endif
    if
    :: !sleeps
    :: sleeps ->
end_polls:
        woken || arrived > 0
    fi;
    keep_events();
    d_step { word[id] = 0; sleeps = false }
    goto leave;

asleep:
    skip;
end_asleep:
    d_step { word[id] != 0 -> word[id] = 0 }

leave:
    skip;
    d_step {
        if
        :: IS_PARKED(id) -> state[id] = RUNNING; awake = true
        :: else
        fi;
        has = (state[id] == RUNNING);
        found = found && !has
    }
    if
    :: mine
    :: !mine && !found -> goto left
    :: !mine && found -> /* pushers may have relied on this one */
        found = false;
        wake_for_work(other);
        goto left
    fi;
#ifdef MUTANT_RELEASE_BEFORE_RUN
    claimer = NOBODY;
#endif
#ifdef MUTANT_KEPT_WITHOUT_PROCESSOR
    if
    :: has -> handle_kept()
    :: else
    fi;
#else
    handle_kept();
#endif
    polling = NOBODY;
#ifdef MUTANT_CLAIM_KEPT
    if
    :: has -> claimer = NOBODY
    :: else
    fi;
#else
    claimer = NOBODY;
#endif
    mine = false;
#ifndef MUTANT_SPARE_LEAVES
    if
    :: !has -> wake_parked(other)
    :: else
    fi;
#endif

left:
    atomic {
        if
        :: has -> has = false; goto find
        :: else
        fi
    }

/* Without a processor, until one is assigned. */
spare:
    atomic {
        if
        :: state[id] == RUNNING -> goto find
        :: state[id] == PARKED -> state[id] = RUNNING; awake = true; goto find
        :: state[id] == SPARE
        fi
    }
end_spare:
    d_step { word[id] != 0 -> word[id] = 0 }
    goto spare;

stays:
end_stuck:
    false
}

init
{
    atomic {
        run worker(0);
        run worker(1);
        run monitor();
        run ticker();
        run network();
        if
        :: wake_below = LIMIT; may_lift = true
        :: wake_below = LIMIT; run outside()
        :: wake_below = LIMIT; run taker()
        :: work = 1; run outside()
        :: run taker()
        fi
    }
    timeout;
    assert(arrived == 0 && kept == 0);
    assert(work == 0 || stuck > 0);
    assert(stuck == WORKERS || polling != NOBODY || (stuck == 1 && processor == UNUSED))
}
