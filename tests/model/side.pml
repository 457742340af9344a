/* side.pml - runtime/stream/reactor.c: is an edge ever lost, a side tried by two at once, or left in
 * `due` while the poller sleeps?
 * Two sides. Each has an owner, which takes at once what is there or begins an operation and waits
 * for its end, and a kernel, which makes an item readable and reports an edge later: that of side 0
 * through epoll, which ends the poller's wait, that of side 1 by another thread (a lookup, a
 * cancel). An attempt takes one item; it sets READY again if it took one, since it does not
 * know whether that was the last. One step per atomic operation or system call. */

#define SIDES 2
#define ITEMS 2 /* of each side */

#define READY 1
#define WAITS 2
#define QUEUED 4

byte word[SIDES];
byte items[SIDES];      /* readable now */
bool edge[SIDES];       /* made by the kernel, not reported yet */
byte due, oldest[SIDES]; /* the list; a side is there once */
bool asleep, wakes;     /* the eventfd */
bool op[SIDES];         /* an operation is begun, its end was not called */
bool tried[SIDES];      /* an attempt runs */
byte taken[SIDES];
byte owners;            /* have taken all */

/* set_bit_and_queue; `queue` and `sleeps` are the caller's. */
inline set(s, state)
{
#ifdef MUTANT_WAITS_WITHOUT_QUEUE
    d_step {
        queue = (state == READY && (word[s] & WAITS) && !(word[s] & QUEUED));
        word[s] = word[s] | state | (queue -> QUEUED : 0)
    }
#else
#ifdef MUTANT_EDGE_IGNORED_WHILE_QUEUED
    d_step {
        queue = !(word[s] & QUEUED) && ((word[s] | state) & (READY | WAITS)) == (READY | WAITS);
        word[s] = ((word[s] & QUEUED) -> word[s] : word[s] | state | (queue -> QUEUED : 0))
    }
#else
#ifdef MUTANT_QUEUED_TWICE
    d_step {
        queue = ((word[s] | state) & (READY | WAITS)) == (READY | WAITS);
        word[s] = word[s] | state | (queue -> QUEUED : 0)
    }
#else
    d_step {
        queue = !(word[s] & QUEUED) && ((word[s] | state) & (READY | WAITS)) == (READY | WAITS);
        word[s] = word[s] | state | (queue -> QUEUED : 0)
    }
#endif
#endif
#endif
    if
    :: queue ->
#ifdef MUTANT_ASLEEP_LOADED_BEFORE_THE_PUSH
        sleeps = asleep;
#endif
        d_step {
            for (at : 0 .. SIDES - 1) {
                assert(at >= due || oldest[at] != s) /* not there already */
            }
            assert(due < SIDES);
            oldest[due] = s;
            due++;
            at = 0
        }
#ifndef MUTANT_ASLEEP_LOADED_BEFORE_THE_PUSH
        sleeps = asleep;
#endif
        if
#ifndef MUTANT_NO_EVENTFD
        :: sleeps -> wakes = true
#endif
        :: else
        fi;
        sleeps = false;
        queue = false
    :: else
    fi
}

inline take(s)
{
    d_step {
        took = items[s] > 0;
        if
        :: took -> items[s]--; taken[s]++
        :: else
        fi
    }
}

/* The owner of a side; an operation's end lets it go on. */
proctype owner(byte s)
{
    bool queue, sleeps, took;
    byte at;
    do
    :: taken[s] == ITEMS -> break
    :: else ->
        if
        :: true -> /* at once */
#ifndef MUTANT_NOW_CLEARS_AFTER_THE_CALL
            word[s] = word[s] & ~READY;
#endif
            take(s);
#ifdef MUTANT_NOW_CLEARS_AFTER_THE_CALL
            word[s] = word[s] & ~READY;
#endif
            if
#ifndef MUTANT_NO_MORE
            :: took -> word[s] = word[s] | READY
#endif
            :: else
            fi;
            if
            :: took -> goto next
            :: else
            fi
        :: true
        fi;
        op[s] = true;
        set(s, WAITS);
        !op[s];
next:
        took = false
    od;
    owners++
}

proctype kernel(byte s)
{
    bool queue, sleeps;
    byte n, at;
    do
    :: n < ITEMS ->
        atomic { items[s]++; edge[s] = true; n++ }
        if
        :: s == 1 -> edge[s] = false; set(s, READY)
        :: else
        fi
    :: else -> break
    od
}

inline attempt_side_operation(s)
{
    assert(!tried[s] && op[s]);
    tried[s] = true;
    do
    :: true ->
#ifndef MUTANT_READY_CLEARED_AFTER_THE_CALL
        word[s] = word[s] & ~READY;
#endif
        take(s);
#ifdef MUTANT_READY_CLEARED_AFTER_THE_CALL
        word[s] = word[s] & ~READY;
#endif
        if
        :: took ->
            word[s] = word[s] | READY; /* teffi_side_set_ready */
            break
        :: else
        fi;
        /* keep_queued_if_ready */
#ifdef MUTANT_READY_UNSEEN
        d_step { tried[s] = false; word[s] = word[s] & ~QUEUED };
        goto tried_it
#else
        if
        :: d_step { word[s] == (WAITS | QUEUED) -> tried[s] = false; word[s] = WAITS }
            goto tried_it
        :: word[s] & READY
        fi
#endif
    od;
#ifdef MUTANT_ENDED_WHILE_QUEUED
    atomic { tried[s] = false; op[s] = false };
    word[s] = word[s] & READY
#else
#ifdef MUTANT_ENDED_FORGETS_READY
    atomic { tried[s] = false; word[s] = 0 };
#else
    atomic { tried[s] = false; word[s] = word[s] & READY };
#endif
    op[s] = false /* ended: the owner may begin the next */
#endif
}

/* wait_for_events, run_events. */
proctype poller()
{
    bool queue, sleeps, took, looks, events[SIDES];
    byte i, n, list[SIDES], at;
end:
    do
    :: true ->
#ifdef MUTANT_ASLEEP_STORED_AFTER_THE_LOOK
        looks = due > 0;
        asleep = true;
#else
        asleep = true;
        looks = due > 0;
#endif
        /* epoll: what is there; with nothing in `due`, wait for it */
end_asleep:
        d_step {
            looks || wakes || edge[0] ->
            events[0] = edge[0];
            edge[0] = false;
            events[1] = wakes;
            looks = false
        }
        asleep = false;
        if
        :: events[1] -> wakes = false
        :: else
        fi;
        if
        :: events[0] -> set(0, READY)
        :: else
        fi;
        d_step {
            n = due;
            for (i : 0 .. SIDES - 1) { list[i] = oldest[i] }
            due = 0;
            i = 0
        }
        do
        :: i < n ->
            attempt_side_operation(list[i]);
tried_it:
            took = false;
            i++
        :: else -> break
        od;
        atomic { i = 0; n = 0; list[0] = 0; list[1] = 0; events[0] = false; events[1] = false }
    od
}

init
{
    atomic {
        run owner(0);
        run owner(1);
        run kernel(0);
        run kernel(1);
        run poller()
    }
    timeout;
    assert(owners == SIDES && due == 0)
}
