/* wait_any.pml - teffi_await_any of runtime/call/wait.c, a thread's side: does the thread wake with
 * the first end, and has every signal let go of its context when it goes on?
 * A thread waits for one of SIGNALS ends again and again, until all have come, then frees its
 * context. Each end comes once, from a thread of its own, at any time. A sleep in the kernel may end
 * early. One step per atomic operation, as in wait.pml. */

#define SIGNALS 3
#define EARLY 1 /* sleeps that end for no reason */

#define NEW 0
#define AWAITED 1
#define DONE 2

#define EMPTY 0
#define TOKEN 1
#define ASLEEP 2

byte word[SIGNALS] = NEW;
short asleep_for;
byte parker = EMPTY;
bool in_kernel; /* the thread sleeps on the parker's word */
bool taken[SIGNALS]; /* ends that an earlier wait has returned */
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
    byte was;
    d_step {
        assert(!freed);
        was = word[i];
        word[i] = DONE
    }
    if
    :: was == AWAITED ->
        d_step {
            assert(!freed);
            asleep_for--;
            was = (asleep_for == 0)
        }
        if
        :: was -> wake()
        :: else
        fi
    :: else
    fi
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

/* Until the token is there. */
inline block()
{
    token = false;
    do
    :: token -> break
    :: else -> park()
    od;
    token = false
}

active proctype thread()
{
    byte i, marked, signals, left = SIGNALS;
    bool token;
    atomic {
        for (i : 0 .. SIGNALS - 1) {
            run signal(i)
        }
    }
    do
    :: left == 0 -> break
    :: else ->
        asleep_for = 1;
        marked = 0;
        do
        :: marked == SIGNALS -> break
        :: marked < SIGNALS && taken[marked] -> marked++
        :: marked < SIGNALS && !taken[marked] ->
            if
            :: atomic { word[marked] == NEW -> word[marked] = AWAITED }; marked++
            :: atomic { word[marked] == DONE -> skip }; break
            fi
        od;
        if
        :: marked == SIGNALS -> block()
        :: else
        fi;
        signals = 0;
        i = 0;
        do
        :: i == marked -> break
        :: i < marked ->
            d_step {
                if
                :: taken[i]
                :: !taken[i] && word[i] == AWAITED -> word[i] = NEW
                :: else -> signals++
                fi
            }
            i++
        od;
        if
        :: marked < SIGNALS && signals > 0 -> block()
        :: else
        fi;
#ifndef MUTANT_FORGET_SIGNALS
        if
        :: signals > 1 ->
            d_step {
                asleep_for = asleep_for + signals - 1;
                token = (asleep_for == 0)
            }
            if
            :: token -> token = false
            :: else -> block()
            fi
        :: else
        fi;
#endif
        d_step {
            /* nobody touches the context between two waits, and one end is there */
            assert(parker == EMPTY);
#ifndef MUTANT_FORGET_SIGNALS
            assert(asleep_for == 0 || (asleep_for == 1 && signals == 0));
#endif
            i = 0;
            do
            :: taken[i] || word[i] != DONE -> i++
            :: else -> break
            od;
            assert(i < SIGNALS);
            taken[i] = true;
            left--;
            i = 0
        }
    od;
    freed = true
}
