/* group.pml - the word of runtime/sched/group.c: is an item ever lost, a group queued or run twice?
 * The word is a state and the number of items in it. Pushers, workers that run it with a budget, a
 * turn that may claim it, and a turn that may complete it. One step per atomic operation. */

#define PUSHERS 3
#define ITEMS 2   /* of each pusher */
#define BUDGET 2
#define REPOLLS 1

mtype = { IDLE, READY, RUNNING, COMPLETE };

mtype state = IDLE;
byte in_word, in_head;
byte queued;          /* how often it is in run queues */
byte running;         /* how many run it */
byte accepted, handled, refused, ended;
bool completed;

inline enqueue()
{
    d_step { queued++; assert(queued == 1) }
}

proctype pusher()
{
    byte n;
    mtype seen;
    do
    :: n < ITEMS ->
        atomic { /* the CAS; a failed one changes nothing */
            seen = state;
            if
            :: state == COMPLETE -> refused++
            :: else ->
                in_word++;
                accepted++;
                if
                :: state == IDLE -> state = READY
                :: else
                fi
            fi
        }
        if
        :: seen == IDLE -> enqueue()
#ifdef MUTANT_QUEUE_WHILE_RUNNING
        :: seen == RUNNING -> enqueue()
#endif
        :: else
        fi;
        n++
    :: else -> break
    od
}

/* One item; it may complete the group, once. */
inline handle()
{
    d_step { in_head--; handled++ }
    if
    :: atomic { !completed && state == RUNNING -> completed = true;
                in_head = in_head + in_word; in_word = 0; state = COMPLETE }
    :: true
    fi
}

proctype worker()
{
    byte done, polls;
    bool more;

end_idle:
    do
    :: atomic { queued > 0 -> queued-- }
        done = 0;
        polls = 0;
        /* start */
        if
        :: state == COMPLETE
        :: else ->
            atomic {
                assert(state == READY);
                state = RUNNING;
                in_head = in_head + in_word;
                in_word = 0
            }
        fi;
        d_step { running++; assert(running == 1) }
        do
        :: in_head > 0 && done < BUDGET -> handle(); done++
        :: in_head > 0 && done == BUDGET ->
            running--;
            atomic {
                if
                :: state == RUNNING -> state = READY
                :: else
                fi
            }
#ifndef MUTANT_FORGET_AFTER_BUDGET
            enqueue();
#endif
            break
        :: in_head == 0 ->
            running--;
#ifdef MUTANT_IDLE_WITHOUT_CHECK
            state = IDLE;
            break
#else
            atomic {
                more = in_word > 0 || state == COMPLETE;
                if
                :: !more -> state = IDLE
                :: else
                fi
            }
            if
            :: !more -> break
            :: more && state == COMPLETE -> ended++; break
            :: more && state != COMPLETE && polls == REPOLLS ->
                state = READY;
                enqueue();
                break
            :: more && state != COMPLETE && polls < REPOLLS ->
                polls++;
                running++;
                d_step { in_head = in_word; in_word = 0 }
            fi
#endif
        od
    od
}

proctype claimer()
{
    bool got, more;
    atomic {
        if
        :: state == IDLE && in_word == 0 -> state = RUNNING; got = true
#ifdef MUTANT_CLAIM_READY
        :: state == READY -> state = RUNNING; got = true
#endif
        :: else
        fi
    }
    if
    :: !got
    :: got ->
        d_step { running++; assert(running == 1) }
        if
        :: atomic { !completed && state == RUNNING -> completed = true;
                    in_head = in_head + in_word; in_word = 0; state = COMPLETE }
        :: true
        fi;
        running--;
        atomic {
            more = in_word > 0 || state == COMPLETE;
            if
            :: !more -> state = IDLE
            :: else
            fi
        }
        if
        :: !more
        :: more && state == COMPLETE && in_head == 0 -> ended++
        :: else ->
            atomic {
                if
                :: state == RUNNING -> state = READY
                :: else
                fi
            }
#ifndef MUTANT_RELEASE_FORGETS
            enqueue()
#endif
        fi
    fi
}

init
{
    atomic {
        run pusher();
        run pusher();
        run pusher();
        run claimer();
        run worker();
        run worker()
    }
    timeout;
    assert(handled == accepted && accepted + refused == PUSHERS * ITEMS);
    assert(in_word == 0 && in_head == 0 && queued == 0 && running == 0);
    assert(completed -> (state == COMPLETE && ended == 1) : (state == IDLE && ended == 0))
}
