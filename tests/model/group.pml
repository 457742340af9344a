/* group.pml - the word of runtime/group/group.c: is an item ever lost, handled twice or out of order,
 * a group queued twice, run by two, ended twice or too early?
 * The word is a state and the items pushed since it was last emptied; head belongs to whoever has the
 * group: the pusher that took it out of its rest, the run queue, the worker. To the word READY and
 * RUNNING are one.
 * Pushers, three workers that run it with a budget, a turn that may claim it and run one of its turns in
 * place. A turn may take an item early (drain), may yield in its middle (it is the first of the group's
 * items then, and goes on later, before all others) and may complete the group; when that has ended, its
 * memory is used again for another life, into which slow pushers of the life before still push. One step per atomic operation; a
 * compare-and-swap that fails changes nothing and is tried again, so only its success is a step.
 * Items are numbered as their pushes took effect, and must be handled in that order. */

#define PUSHERS 2
#define ITEMS 2    /* of each pusher, and one more of whoever uses the memory again */
#define ALL (PUSHERS * ITEMS + LIVES - 1)
#define BUDGET 2
#define REPOLLS 1
#define LIVES 2
#define YIELDS 1

mtype = { IDLE, READY, BLOCKED, COMPLETE };

mtype state = IDLE;
chan word = [ALL] of { byte };
chan head = [ALL] of { byte };
byte queued;          /* how often it is in run queues */
byte running;         /* how many run it */
byte accepted, handled, refused;
byte completed, ended, reused; /* over all lives */
byte yields;
bool gave;            /* a turn that yielded is before all that is in head */
bool stays;           /* and the group is to be left alone until somebody lets it go on */

#define RESTS(s) (s == IDLE || s == BLOCKED)

inline enqueue()
{
    d_step { queued++; assert(queued == 1) }
}

/* Swap the word for one without items; they go behind what head has. Inside a step. */
inline take_all(s)
{
    do
    :: len(word) > 0 -> word ? item; head ! item
    :: len(word) == 0 -> break
    od;
    item = 0;
    state = s
}

inline push()
{
    atomic {
        seen = state;
        if
        :: state == COMPLETE -> refused++
        :: else ->
            accepted++;
            number = accepted;
            if
            :: RESTS(state) -> state = READY
            :: else -> word ! number
            fi
        fi
    }
    if
#ifdef MUTANT_BLOCKED_IS_NOT_WOKEN
    :: seen == IDLE ->
#else
    :: RESTS(seen) ->
#endif
#ifdef MUTANT_QUEUED_BEFORE_HEAD
        enqueue();
        head ! number
#else
        head ! number;
        enqueue()
#endif
#ifdef MUTANT_QUEUE_WHILE_RUNNING
    :: seen == READY && running -> enqueue()
#endif
    :: else
    fi;
    number = 0;
    seen = 0
}

proctype pusher()
{
    byte n, number;
    mtype seen;
    do
    :: n < ITEMS -> push(); n++
    :: else -> break
    od
}

/* RUNNING -> IDLE or BLOCKED, when nothing is queued. */
inline to_idle(rested)
{
    atomic {
#ifdef MUTANT_IDLE_WITHOUT_CHECK
        rested = state == READY;
#else
        rested = state == READY && len(word) == 0;
#endif
        if
        :: rested -> running--; state = IDLE
        :: rested -> running--; state = BLOCKED
        :: !rested
        fi
    }
}

inline handle_one()
{
    d_step {
        head ? item;
        handled++;
        assert(item == handled && !gave);
        item = 0
    }
}

/* From inside a turn: no pushes any more. */
inline complete()
{
    d_step {
        assert(state == READY && running == 1);
        completed++;
#ifdef MUTANT_COMPLETE_DROPS_WORD
        do
        :: len(word) > 0 -> word ? item
        :: len(word) == 0 -> break
        od;
        item = 0;
        state = COMPLETE
#else
        take_all(COMPLETE)
#endif
    }
}

inline maybe_complete()
{
    if
    :: completed < ended + 1 && completed < LIVES -> complete()
    :: true
    fi
}

inline end()
{
    d_step {
        running--;
        ended++;
        assert(ended == completed && running == 0 && queued == 0);
        assert(len(head) == 0 && len(word) == 0 && !gave && state == COMPLETE)
    }
}

proctype worker()
{
    byte done, polls, item;
    bool rested;

end_idle:
    do
    :: atomic { queued > 0 -> queued-- }
        /* start */
        if
        :: atomic { state == COMPLETE -> running++; assert(running == 1) }
            if
            :: len(head) == 0 && !gave -> running--; goto over
            :: len(head) > 0 || gave
            fi
        :: atomic { state == READY -> running++; assert(running == 1) }
            if
#ifdef MUTANT_NEW_BEFORE_OLD
            :: d_step {
                   do
                   :: len(head) > 0 -> head ? item; word ! item
                   :: len(head) == 0 -> break
                   od;
                   take_all(READY)
               }
#else
            :: d_step { len(head) == 0 && !gave -> take_all(READY) }
            :: len(head) > 0 || gave
#endif
            fi
        :: !(state == COMPLETE || state == READY) -> assert(false)
        fi;
        if
        :: d_step {
               gave ->
#ifndef MUTANT_OTHERS_FIRST
               gave = false
#endif
           }
           maybe_complete()
        :: else
        fi;
        do
        :: len(head) > 0 && done == BUDGET ->
            running--;
#ifndef MUTANT_FORGET_AFTER_BUDGET
            enqueue();
#endif
            break
        :: len(head) > 0 && done < BUDGET ->
            handle_one();
            done++;
            maybe_complete();
            if
            :: true
            :: true -> /* drain: one more, from inside the turn */
                if
                :: len(head) == 0 && len(word) > 0 -> d_step { take_all(state) }
                :: else
                fi;
                if
                :: len(head) > 0 -> handle_one()
                :: else
                fi
            :: d_step { yields < YIELDS -> yields++; gave = true; running-- }
                if
                :: stays = true
                :: enqueue()
                fi;
                break
            fi
        :: len(head) == 0 ->
            to_idle(rested);
            if
            :: rested -> break
            :: !rested && state == COMPLETE -> end(); break
            :: !rested && state != COMPLETE && polls == REPOLLS ->
                running--;
                enqueue();
                break
            :: !rested && state != COMPLETE && polls < REPOLLS ->
                polls++;
                d_step { take_all(READY) }
            fi
        od;
over:
        skip;
        d_step { done = 0; polls = 0; rested = false }
    od
}

proctype claimer()
{
    bool got, rested;
    byte item;
    atomic {
        if
        :: state == IDLE && len(word) == 0 -> state = READY; got = true
#ifdef MUTANT_CLAIM_READY
        :: state == READY -> got = true
#endif
        :: else
        fi;
        if
        :: got -> running++; assert(running == 1)
        :: else
        fi
    }
    if
    :: !got
    :: got ->
        maybe_complete();
        if
        :: true
        :: d_step { yields < YIELDS -> yields++; gave = true; running-- } /* a turn in place does */
            if
            :: stays = true
#ifdef MUTANT_CLAIM_FORGETS_ITS_TURN
            :: true
#else
            :: enqueue()
#endif
            fi;
#ifndef MUTANT_RELEASED_OVER_A_TURN
            goto over
#else
            running++
#endif
        fi;
        /* release */
        to_idle(rested);
        if
        :: rested
#ifdef MUTANT_RELEASE_ENDS_EARLY
        :: !rested && state == COMPLETE -> end()
#else
        :: !rested && state == COMPLETE && len(head) == 0 -> end()
#endif
        :: !rested && !(state == COMPLETE && len(head) == 0) ->
            running--;
#ifndef MUTANT_RELEASE_FORGETS
            enqueue()
#endif
        fi
    fi;
over:
    skip
}

/* Lets a turn that yielded, and was to be left alone, go on. */
proctype other()
{
end_unasked:
    do
    :: d_step { stays -> stays = false }
#ifndef MUTANT_NEVER_GOES_ON
        enqueue()
#endif
    od
}

/* The memory's next life begins with an item of its own, as a process's does. */
proctype reuser()
{
    byte number;
    mtype seen;
end_unused:
#ifdef MUTANT_REUSE_BEFORE_ENDED
    state == COMPLETE;
#else
    ended > reused;
#endif
    if
    :: reused < LIVES - 1 ->
        d_step { reused++; state = IDLE }
        push()
    :: else
    fi
}

init
{
    atomic {
        run pusher();
        run pusher();
        run claimer();
        run reuser();
        run other();
        run worker();
        run worker();
        run worker()
    }
    timeout;
    assert(handled == accepted && accepted + refused == PUSHERS * ITEMS + reused);
    assert(len(word) == 0 && len(head) == 0 && queued == 0 && running == 0);
    assert(ended == completed && reused <= ended && !gave && !stays);
    assert((ended > reused) == (state == COMPLETE) && (ended == reused) == RESTS(state))
}
