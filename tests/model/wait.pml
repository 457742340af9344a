/* wait.pml - runtime/call/wait.c, a thread's side, and its parker (runtime/os/thread.c): does a
 * thread that waits for several ends wake when the last is there, not before, and does nobody touch
 * its context after it may be freed?
 * A thread waits for SIGNALS ends at once, ROUNDS times with the same context, then frees it. Each
 * end comes from a thread of its own, at any time after its wait is begun. A sleep in the kernel
 * may end early. One step per atomic operation; the kernel's look at the word is one with the one
 * before it. */

#define SIGNALS 3
#define ROUNDS 2
#define EARLY 2 /* sleeps that end for no reason */

#define NEW 0
#define AWAITED 1
#define DONE 2

#define EMPTY 0
#define TOKEN 1
#define ASLEEP 2

byte word[SIGNALS] = NEW;
byte asleep_for;
byte parker = EMPTY;
bool in_kernel; /* the thread sleeps on the parker's word */
bool ended[SIGNALS], begun[SIGNALS];
bool freed;
byte early;

/* The kernel looks up the address, and finds nobody there when the context is gone: no touch. */
inline wake()
{
    d_step {
        assert(!freed);
        was = parker;
        parker = TOKEN
    }
    if
    :: was == ASLEEP -> in_kernel = false
    :: else
    fi;
    was = 0
}

proctype signal(byte i)
{
    byte was, round;
    do
    :: round == ROUNDS -> break
    :: round < ROUNDS ->
        begun[i];
        d_step {
            assert(!freed);
            begun[i] = false;
            ended[i] = true;
            was = word[i];
            word[i] = DONE
        }
        if
        :: was == AWAITED ->
            d_step {
                assert(!freed);
                asleep_for--;
                was = asleep_for
            }
#ifdef MUTANT_WAKE_EACH
            wake()
#else
            if
            :: was == 0 -> wake()
            :: else
            fi
#endif
        :: else
        fi;
        was = 0;
        round++
    od
}

/* token: was it taken? */
inline park()
{
    if
    :: atomic { parker == EMPTY -> parker = ASLEEP; in_kernel = true }
        if
        :: !in_kernel
        :: in_kernel && early < EARLY -> in_kernel = false; early++
        fi
    :: atomic { parker != EMPTY -> skip }
    fi;
    d_step {
        token = (parker == TOKEN);
        parker = EMPTY
    }
}

active proctype thread()
{
    byte i, round, done;
    bool token;
    atomic {
        for (i : 0 .. SIGNALS - 1) {
            run signal(i)
        }
    }
    do
    :: round == ROUNDS -> break
    :: round < ROUNDS ->
        i = 0;
        d_step {
            for (i : 0 .. SIGNALS - 1) {
                word[i] = NEW;
                ended[i] = false;
                begun[i] = true
            }
        }
        done = 0;
#ifndef MUTANT_COUNT_LATE
        asleep_for = SIGNALS;
#endif
        i = 0;
        do
        :: i == SIGNALS -> break
        :: i < SIGNALS ->
            d_step {
                if
                :: word[i] == NEW -> word[i] = AWAITED
                :: else -> done++
                fi
            }
            i++
        od;
        i = 0;
#ifdef MUTANT_COUNT_LATE
        asleep_for = SIGNALS;
#endif
#ifdef MUTANT_SUBTRACT_NOTHING
        token = false;
#else
        token = (done == 0);
#endif
        if
        :: token -> token = false
        :: else ->
            d_step {
                asleep_for = asleep_for - done;
                token = (asleep_for == 0)
            }
        fi;
#ifdef MUTANT_LOOK_AT_COUNT
        do
        :: asleep_for == 0 -> break
        :: else -> park()
        od;
#else
#ifdef MUTANT_SLEEP_ONCE
        if
        :: token
        :: else -> park()
        fi;
#else
        do
        :: token -> break
        :: else -> park()
        od;
#endif
#endif
        i = 0;
        d_step {
            for (i : 0 .. SIGNALS - 1) {
                assert(ended[i])
            }
        }
        round++
    od;
    freed = true
}
