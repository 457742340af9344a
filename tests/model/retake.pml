/* retake.pml - a processor retaken from a turn that takes too long, runtime/sched/{retake.h,monitor.c}:
 * do two threads ever use a processor at once, does a turn ever wait for ever?
 * One processor, three workers, the monitor. A worker's stores to its using_processor flag wait
 * in a buffer of its own, as on x86, until they drain, it empties the buffer (unlock, exchange), or
 * a barrier on all threads does. Turns call into the scheduler, and block in declared regions. Where
 * the kernel has no such barrier, use_begin is an exchange; init chooses. */

#define WORKERS 3
#define TURNS 3    /* of all workers together */
#define RETAKES 2  /* tries of the monitor */
#define NOBODY WORKERS

mtype = { RUNNING, PARKED, OUT, WAITING, LOST, SPARE };

bool exchanges;
bool lock;                   /* idle_lock; guards: */
mtype state[WORKERS];
bool mine[WORKERS];          /* w->processor */
byte holder = NOBODY;        /* processor->worker */

bool retaken[WORKERS];
bool using_processor[WORKERS];  /* as the others see it */
chan late[WORKERS] = [3] of { bool };
byte turns;                  /* begun */
byte using;                  /* threads that do with the processor what its owner alone may do */

inline flush(i)
{
    do
    :: len(late[i]) > 0 -> late[i] ? seen; using_processor[i] = seen
    :: len(late[i]) == 0 -> break
    od;
    seen = false
}

/* What a worker does under the lock is one step; only the monitor holds it for several. */
inline settle()
{
    d_step { !lock -> flush(id) }
}

proctype drain(byte id)
{
    bool seen;
end:
    do
    :: d_step { len(late[id]) > 0 -> late[id] ? seen; using_processor[id] = seen; seen = false }
    od
}

inline use_begin()
{
    if
#ifndef MUTANT_PLAIN_EXCHANGE
    :: d_step { exchanges -> flush(id); using_processor[id] = true }
    :: !exchanges -> late[id] ! true
#else
    :: late[id] ! true
#endif
    fi
}

inline use_end()
{
    late[id] ! false
}

inline use()
{
    d_step { using++; assert(using == 1) }
    using--
}

/* Lock held. */
inline hold(i)
{
    mine[i] = true;
    holder = i;
    state[i] = RUNNING;
    retaken[i] = false
}

/* Lock held: to the one that waits, if any does. out: heir */
inline promote()
{
    if
    :: state[0] == WAITING -> heir = 0
    :: state[1] == WAITING -> heir = 1
    :: state[2] == WAITING -> heir = 2
    :: else -> heir = NOBODY
    fi;
    if
    :: heir != NOBODY -> hold(heir)
    :: else
    fi
}

inline wait_for_processor()
{
    atomic { !lock && state[id] == RUNNING -> skip } /* its parker wakes it, then it looks */
}

/* A blocking region: the processor goes to one that waits, or lies free. */
inline block()
{
    use_begin();
    if
    :: !retaken[id]
    :: retaken[id] -> settle()
    fi;
    d_step {
        !lock ->
        if
        :: mine[id] ->
            mine[id] = false;
            holder = NOBODY;
            state[id] = OUT;
            promote();
            heir = 0
        :: else
        fi;
        flush(id)
    }
    use_end();
    /* and back */
#ifndef MUTANT_RETAKEN_ASLEEP
    use_begin();
#endif
    d_step {
        !lock ->
        if
        :: holder == NOBODY -> hold(id)
        :: holder != NOBODY && state[holder] == PARKED ->
            mine[holder] = false;
            state[holder] = SPARE;
            hold(id)
        :: else -> state[id] = WAITING
        fi;
        flush(id)
    }
    wait_for_processor();
#ifndef MUTANT_RETAKEN_ASLEEP
    use_end()
#endif
}

proctype worker(byte id)
{
    bool seen, blocked;
    byte heir;

    if
    :: state[id] == SPARE -> goto end_spare
    :: else
    fi;

between: /* using_processor is set; sure of what mine says */
    if
    :: mine[id] -> use()
    :: else ->
        /* regain */
        d_step {
            !lock ->
            if
            :: holder == NOBODY -> hold(id)
            :: else -> state[id] = SPARE
            fi;
            flush(id)
        }
end_spare:
        wait_for_processor();
        goto between
    fi;

    /* give_processor_to_waiter; or park, if there is nothing to do */
    d_step {
        !lock ->
        if
        :: state[0] == WAITING || state[1] == WAITING || state[2] == WAITING ->
            mine[id] = false;
            state[id] = SPARE;
            promote();
            heir = 0
        :: else ->
            if
            :: turns == TURNS -> state[id] = PARKED
            :: else
            fi
        fi;
        flush(id)
    }
    if
    :: state[id] == SPARE -> goto end_spare
    :: state[id] == PARKED -> goto end_parked
    :: state[id] == RUNNING
    fi;

    turns++;
    use_end();
    blocked = false;
    do
    :: use_begin();
        if
        :: !retaken[id] -> use()
        :: retaken[id]
        fi;
        use_end();
        break
    :: !blocked -> block(); blocked = true
    :: break
    od;
    use_begin();
#ifndef MUTANT_UNSETTLED
    if
    :: !retaken[id]
    :: retaken[id] -> settle()
    fi;
#endif
    goto between;

end_parked:
    atomic { state[id] == SPARE -> goto end_spare }
}

proctype monitor()
{
    byte tries, turn, w, heir, id;
    bool seen, idle;

    do
    :: tries == RETAKES -> break
    :: tries < RETAKES ->
        tries++;
        turn = turns;
        atomic { !lock -> lock = true; w = holder }
        if
        :: w == NOBODY || state[w] != RUNNING
        :: else ->
#ifdef MUTANT_LOOK_BEFORE_SET
            idle = !using_processor[w];
            retaken[w] = true;
#else
            retaken[w] = true;
#ifndef MUTANT_NO_BARRIER
            if
            :: d_step { !exchanges -> flush(w) }
            :: exchanges
            fi;
#endif
            idle = !using_processor[w];
#endif
            d_step {
                heir = NOBODY;
                if
                :: idle && turns == turn ->
                    promote();
                    if
                    :: heir != NOBODY
                    :: heir == NOBODY && state[0] == SPARE -> heir = 0; hold(heir)
                    :: heir == NOBODY && state[1] == SPARE -> heir = 1; hold(heir)
                    :: heir == NOBODY && state[2] == SPARE -> heir = 2; hold(heir)
                    :: else
                    fi
                :: else
                fi;
                if
                :: heir != NOBODY -> mine[w] = false; state[w] = LOST
                :: else -> retaken[w] = false
                fi;
                heir = 0;
                idle = false
            }
        fi;
        lock = false;
        d_step { w = 0; turn = 0 }
    od
}

init
{
    atomic {
        if
        :: exchanges = true
        :: exchanges = false
        fi;
        state[0] = RUNNING; mine[0] = true; holder = 0; using_processor[0] = true;
        state[1] = SPARE; using_processor[1] = true;
        state[2] = SPARE; using_processor[2] = true;
        run worker(0);
        run worker(1);
        run worker(2);
        run drain(0);
        run drain(1);
        run drain(2);
        run monitor()
    }
}
