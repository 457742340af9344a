/* park.pml - parking and waking of runtime/sched/{idle,find,run}.c: is work ever left while a worker
 * sleeps?
 * Three workers, tasks from outside and from turns. A worker takes one task or a batch, whose rest it
 * puts where others find it. A turn may be used up and go back, at first without waking anybody; then
 * a timer may make its worker run something else before. A worker may stay in a turn for ever, as
 * long as one other is left: what is ready must then be run by the others. A worker that found work
 * as it was going to sleep leaves a token that came meanwhile; its next sleep ends early then.
 * Worker 0 may have a local batch: a task in its deque, for which no worker is woken. While no_steal
 * is set, others ignore it and sleep. It is cleared after any turn, and by the monitor if the turn
 * does not end; then a worker is woken.
 * Or the cores are contended: no worker is woken while as many as wake_below run. The monitor exempts
 * workers that stay in a turn: it raises wake_below, and wakes a worker if there is work. It may also
 * lift the limit, as a trial does, and set it again; then there are fewer tasks.
 * One step per atomic operation; lists under idle_lock are one step with the word they go with. */

#define WORKERS 3
#define OUTSIDE 2  /* tasks pushed from outside; while cores are contended one less */
#define MORE 1     /* tasks pushed or brought by turns, and turns that go back to the queue */
#define SEARCH_MAX 2
#define LIMIT 1                /* of running workers, without those that stay in a turn */
#define NO_LIMIT (WORKERS + 1) /* more than can run */
#define CHANGES 2              /* the limit is lifted, then set again; then there is no MORE */

byte work;             /* ready and visible */
byte searching, idle;  /* idle_word */
bool listed[WORKERS];  /* in the idle list */
bool token[WORKERS];   /* parker */
byte deque;            /* brought, in worker 0's */
bool no_steal;            /* worker 0's processor */
byte spawned, used_up, timers, brings, ran, stuck;
byte more = MORE, changes; /* that are allowed */
bool contended;
byte wake_below = NO_LIMIT;

#define ENOUGH(idle) (WORKERS >= wake_below + (idle))

/* The token comes at once: that a waker is slow is no other than that the woken one is. */
inline lock_and_wake_one()
{
    if
    :: searching == 0 && idle > 0 ->
        if
        :: listed[0] -> listed[0] = false; token[0] = true
        :: listed[1] -> listed[1] = false; token[1] = true
        :: listed[2] -> listed[2] = false; token[2] = true
        fi;
        idle--;
        searching++
    :: else
    fi
}

/* none: nobody to wake. were_idle: read in one step with searching, and before wake_below. */
inline wake_one()
{
    d_step {
        none = searching > 0 || idle == 0;
        were_idle = (contended && !none -> idle : 0)
    }
    if
    :: none
    :: else ->
        if
        :: atomic { !contended -> lock_and_wake_one() }
        :: contended && ENOUGH(were_idle)
        :: contended && !ENOUGH(were_idle) -> atomic { lock_and_wake_one() }
        fi
    fi;
    none = false;
    were_idle = 0
}

inline push()
{
#ifdef MUTANT_LOOK_BEFORE_PUSH
    none = searching > 0 || idle == 0;
    work++;
    if
    :: none
    :: else -> wake_one()
    fi
#else
#ifdef MUTANT_ENOUGH_BEFORE_PUSH
    none = ENOUGH(idle);
    work++;
    if
    :: none -> none = false
    :: else -> wake_one()
    fi
#else
    work++;
    wake_one()
#endif
#endif
}

/* By the owner, or the monitor. */
inline let_in()
{
#ifdef MUTANT_LET_IN_BEHIND_THE_WAKE
    wake_one();
    no_steal = false
#else
#ifdef MUTANT_LOOK_BEFORE_LETTING_IN
    none = searching > 0 || idle == 0;
    no_steal = false;
    if
    :: none
    :: else -> wake_one()
    fi
#else
    no_steal = false;
    wake_one()
#endif
#endif
}

/* any_work: the count, then whether it is kept. */
inline look()
{
    found = work > 0;
    if
    :: !found && deque > 0 -> found = !no_steal
    :: else
    fi
}

/* By the monitor. to: read when it is stored; the limit does not go down meanwhile. */
inline raise(to)
{
#ifdef MUTANT_LOOK_BEFORE_RAISING
    look();
    wake_below = to;
#else
    wake_below = to;
    look();
#endif
#ifndef MUTANT_RAISED_UNANNOUNCED
    if
    :: found -> wake_one()
    :: else
    fi;
#endif
    found = false
}

proctype outside(byte pushes)
{
    bool none;
    byte n, were_idle;
    do
    :: n < pushes -> push(); n++
    :: else -> break
    od
}

/* A tick that would not change wake_below is left out. That a long turn is counted, then ends, is the
 * same as that the limit is lifted, then set again. */
proctype monitor()
{
    bool none, found;
    byte were_idle;
end_monitor:
    do
#ifndef MUTANT_STUCK_COUNTS_AS_RUNNING
    :: wake_below < LIMIT + stuck -> raise(LIMIT + stuck)
#endif
    :: atomic { wake_below != NO_LIMIT && changes > 0 -> changes-- } raise(NO_LIMIT)
    :: d_step { wake_below == NO_LIMIT && changes > 0 -> changes--; wake_below = LIMIT + stuck }
    od
}

inline search_end()
{
    mine = false;
    d_step { searching--; none = searching > 0 || idle == 0 }
#ifndef MUTANT_LAST_SEARCHER_LEAVES
    if
    :: none
    :: !none && work > 0 -> wake_one()
    :: !none && work == 0 && deque > 0 ->
        if
        :: !no_steal -> wake_one()
        :: else
        fi
    :: else
    fi
#endif
}

proctype worker(byte id)
{
    bool mine, none, found, unannounced;
    byte were_idle;

find:
    atomic {
        if
        :: work > 0 -> work--; found = true
        :: work > 1 -> work = work - 2; found = true; goto batch
        :: deque > 0 && (id == 0 || !no_steal) -> deque--; found = true
        :: work == 0 && (deque == 0 || (id != 0 && no_steal)) -> found = false
        :: unannounced && timers == 0 -> timers++; found = true /* its own processor's, not seen by others */
        fi
    }
    goto found_or_not;
batch:
    work++;
#ifndef MUTANT_REST_UNANNOUNCED
    wake_one();
#endif
found_or_not:
    if
    :: found ->
        if
        :: mine -> search_end()
        :: else
        fi;
        goto turn
    :: !found && mine -> goto park
    :: !found && !mine ->
        atomic {
            if
            :: searching < SEARCH_MAX -> searching++; mine = true; goto find
            :: else
            fi
        }
    fi;

park:
    skip;
#ifdef MUTANT_LOOK_BEFORE_ANNOUNCING
    found = work > 0;
    if
    :: found -> goto find
    :: else
    fi;
#endif
    d_step {
        listed[id] = true;
        idle++;
        if
        :: mine -> searching--
        :: else
        fi;
        mine = false
    }
#if !defined(MUTANT_NO_LOOK) && !defined(MUTANT_LOOK_BEFORE_ANNOUNCING)
    look();
    if
    :: found -> goto unpark
    :: else
    fi;
#endif
end_asleep:
    d_step { token[id] -> token[id] = false }
unpark:
    atomic {
        if
        :: listed[id] -> /* woken by nobody, or by an old token */
            listed[id] = false;
            idle--;
            mine = found;
            if
            :: mine -> searching++
            :: else
            fi
        :: else -> /* whoever took it out of the list counted it as searching */
#ifdef MUTANT_WOKEN_DOES_NOT_SEARCH
            searching--
#else
            mine = true
#endif
        fi;
        found = false
    }
    goto find;

turn:
    if
    :: unannounced ->
        unannounced = false;
#ifndef MUTANT_USED_UP_FORGOTTEN
        if
        :: work > 0 -> wake_one()
        :: else
        fi
#endif
    :: else
    fi;
    found = false;
    atomic {
        if
        :: spawned + used_up + brings < more ->
            used_up++;
            work++;
            if
            :: work == 1 -> unannounced = true; goto find
            :: else -> goto used_up_beside_others
            fi
        :: spawned + used_up + brings < more -> ran++; spawned++
        :: id == 0 && spawned + used_up + brings < more -> ran++; brings++; goto bring
        :: ran++; goto turn_end
        fi
    }
    push();
    goto turn_end;
bring:
    deque++;
    no_steal = true;
turn_end:
    atomic {
        if
        :: stuck < WORKERS - 1 -> stuck++; goto stays
        :: id == 0 && no_steal && deque > 0 -> goto lets_in
        :: true
        fi
    }
    goto find;
lets_in:
    let_in();
    goto find;
stays:
#ifndef MUTANT_STUCK_AND_KEEPS
    if
    :: id == 0 && no_steal -> let_in()
    :: else
    fi;
#endif
    goto end_stuck;
used_up_beside_others:
    wake_one();
    goto find;

end_stuck:
    false
}

init
{
    atomic {
        run worker(0);
        run worker(1);
        run worker(2);
        if
        :: true
        :: contended = true
        :: contended = true; more = 0; changes = CHANGES
        fi;
        if
        :: contended -> wake_below = LIMIT; run monitor()
        :: else
        fi;
        run outside(OUTSIDE - contended)
    }
    timeout;
    assert(work == 0 && deque == 0 && ran == OUTSIDE - contended + spawned + timers + brings)
}
