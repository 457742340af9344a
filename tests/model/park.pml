/* park.pml - parking and waking of runtime/sched/idle.c: is work ever left while somebody sleeps?
 * Three workers, tasks from outside and from turns. A worker may stay in a turn for ever, as long as
 * one other is left: what is ready must then be run by the others.
 * One step per atomic operation; lists under idle_lock are one step with the word they go with. */

#define WORKERS 3
#define OUTSIDE 2  /* tasks pushed from outside */
#define SPAWN 2    /* tasks pushed by turns */
#define SEARCH_MAX 2

byte work;             /* ready and visible */
byte searching, idle;  /* idle_word */
bool listed[WORKERS];  /* in the idle list */
bool token[WORKERS];   /* parker */
byte spawned, ran, stuck;

inline wake_one(none)
{
    none = searching > 0 || idle == 0;
    if
    :: none
    :: else ->
        atomic {
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
    fi
}

inline push(none)
{
#ifdef MUTANT_LOOK_BEFORE_PUSH
    none = searching > 0 || idle == 0;
    work++;
    if
    :: none
    :: else -> wake_one(none)
    fi
#else
    work++;
    wake_one(none)
#endif
}

proctype outside()
{
    bool none;
    byte n;
    do
    :: n < OUTSIDE -> push(none); n++
    :: else -> break
    od
}

inline search_end(mine, none)
{
    mine = false;
    d_step { searching--; none = searching > 0 || idle == 0 }
#ifndef MUTANT_LAST_SEARCHER_LEAVES
    if
    :: !none && work > 0 -> wake_one(none)
    :: else
    fi
#endif
}

proctype worker(byte id)
{
    bool mine, none, found;

find:
    atomic {
        if
        :: work > 0 -> work--; found = true
        :: else -> found = false
        fi
    }
    if
    :: found ->
        if
        :: mine -> search_end(mine, none)
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
    if
    :: work > 0 ->
        atomic {
            if
            :: listed[id] -> listed[id] = false; idle--; searching++
            :: else -> token[id] = false
            fi
        }
        mine = true;
        goto find
    :: else
    fi;
#endif
end_asleep:
    token[id];
    token[id] = false;
#ifdef MUTANT_WOKEN_DOES_NOT_SEARCH
    searching--;
#else
    mine = true;
#endif
    goto find;

turn:
    ran++;
    atomic {
        if
        :: spawned < SPAWN -> spawned++
        :: goto turn_end
        fi
    }
    push(none);
turn_end:
    atomic {
        if
        :: stuck < WORKERS - 1 -> stuck++; goto end_stuck
        :: true
        fi
    }
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
        run outside()
    }
    timeout;
    assert(work == 0 && ran == OUTSIDE + spawned)
}
