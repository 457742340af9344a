/* call.pml - runtime/call/call.[ch], deadline.[ch]: does each pending call end once, by one, in its
 * own use, and does one with a deadline end at all when nobody responds?
 * One entry, used USES times by its caller: made, sent, waited for or abandoned, given back. Beside
 * it a response to the first use, which may come at any time later; a link to A that is lost; a
 * forward of the first use's message to B, however late; the sweep and its timer; and time, which
 * passes once: deadlines are near (due), far (due then) or never. Between two uses the entry's memory
 * may be given back, so that it is zeros (memory/slab.[ch]); a lock keeps that and the caller apart, so
 * here the caller does it. One step per atomic operation, and per plain access that others may meet.
 * use is a ghost: what generations must tell apart. */

#define USES 3
#define A 1
#define B 2
#define NEAR 0
#define FAR 1
#define NEVER 2

byte generation, sent; /* the word */
bool pending;
byte use;

byte deadline = NEVER;
byte earliest = NEVER;
byte now;

byte timer = NEVER; /* deadline.h: timer_ns */
bool is_set;        /* on the wheel, due at timer */
bool sweeping;
byte asked = NEVER;
bool locked;

bool gone;  /* the entry is zeros, and passed over */
byte begun; /* the generation that it goes on from then */

byte writers;   /* enders that write err, text, reply */
byte signalled; /* the use whose end was */
bool in_use, waiting, lost_a;
bool out;       /* the first use's message may be */
byte meant;     /* who really has the message: what sent must say */

#define lock() atomic { !locked -> locked = true }
#define unlock() locked = false

/* By who took use u. */
inline finish(u)
{
    d_step {
        assert(in_use && use == u && signalled != u && writers == 0);
#ifdef MUTANT_SIGNAL_FIRST
        signalled = u;
#endif
        writers++
    }
    d_step {
        assert(in_use && use == u);
        writers--;
        signalled = u
    }
}

/* ---- the timer; the lock is held ---- */

inline set_earlier(d)
{
    if
    :: d < timer && timer != NEVER ->
        if
        :: atomic { is_set -> is_set = false }
            timer = d;
            is_set = true
        :: else /* it fires now */
        fi
    :: d < timer && timer == NEVER ->
        timer = d;
        is_set = true
    :: else
    fi
}

inline ask(d)
{
    lock();
    if
    :: !sweeping -> set_earlier(d)
    :: sweeping && d < asked -> asked = d
    :: else
    fi;
    unlock()
}

/* ---- the caller ---- */

inline watch(d)
{
    if
    :: atomic { d < earliest -> earliest = d }
        if
        :: d < timer -> ask(d)
        :: else
        fi
    :: else
    fi
}

/* Under the table's lock: made an entry again if need be. */
inline take_entry()
{
    if
    :: gone ->
#ifndef MUTANT_GONE_FOR_LONG
        gone = false;
#endif
#ifdef MUTANT_GENERATIONS_RESTART
        begun = 0;
#endif
        d_step {
            generation = begun;
            begun = 0
        }
    :: else
    fi
}

/* Nobody has the entry: its block is whole. */
inline forget()
{
    begun = generation;
#ifndef MUTANT_EARLIEST_LATE
    earliest = NEVER;
#endif
    d_step {
        generation = 0;
        sent = 0;
        deadline = NEAR
    }
    gone = true
}

inline new()
{
    take_entry();
    d_step {
        use++;
        in_use = true;
        meant = 0
    }
    if
    :: deadline = NEAR
    :: deadline = FAR
    :: deadline = NEVER
    fi;
#ifdef MUTANT_WATCH_FIRST
    watch(deadline);
#endif
    d_step {
#ifdef MUTANT_NO_GENERATIONS
        generation = 1;
#else
        generation++;
#endif
        sent = 0;
        pending = true;
        out = true
    }
#ifndef MUTANT_WATCH_FIRST
    watch(deadline)
#endif
#ifdef MUTANT_EARLIEST_LATE
    ;
    earliest = NEVER
#endif
}

inline mark(to)
{
    atomic {
        if
        :: pending -> sent = to
        :: else
        fi
    }
}

/* Giving the message to a link, and the mark, are one step under its lock. out: refused */
inline give(to)
{
    atomic {
        refused = to == A && lost_a;
        if
        :: !refused ->
            meant = to;
#if !defined(MUTANT_MARK_EARLY) && !defined(MUTANT_MARK_LATE)
            mark(to)
#endif
        :: else
        fi
    }
}

inline send()
{
    if
    :: to = A
    :: to = B
    fi;
#ifdef MUTANT_MARK_EARLY
    mark(to);
#endif
    give(to);
#ifdef MUTANT_MARK_LATE
    mark(to);
#endif
    if
    :: refused ->
        if
        :: atomic { pending -> pending = false } finish(use)
        :: else
        fi
    :: else
    fi;
    refused = false
}

inline await()
{
    waiting = true;
    signalled == use;
    waiting = false
}

inline abandon()
{
    if
    :: atomic { pending -> pending = false }
    :: else ->
#ifdef MUTANT_RELEASE_EARLY
        skip
#else
        await()
#endif
    fi
}

proctype caller()
{
    byte to;
    bool refused;
    do
    :: use < USES ->
        new();
        send();
        if
        :: true -> await()
        :: true -> abandon()
        fi;
        atomic {
            assert(writers == 0 && !pending);
            in_use = false
        }
        if
        :: use < USES -> forget()
        :: true
        fi
    :: else -> break
    od
}

/* ---- who ends ---- */

proctype respond()
{
    out;
#ifdef MUTANT_TAKE_ANY_USE
    if
    :: generation == 1 ->
        if
        :: atomic { pending -> pending = false } finish(1)
        :: else
        fi
    :: else
    fi
#else
#ifdef MUTANT_TAKE_IN_TWO
    if
    :: generation == 1 && pending -> pending = false; finish(1)
    :: else
    fi
#else
    if
    :: atomic { generation == 1 && pending -> pending = false } finish(1)
    :: else
    fi
#endif
#endif
}

proctype lost()
{
    byte took;
    lost_a = true;
    if
    :: gone -> skip
    :: else ->
        if
        :: atomic { pending && sent == A -> assert(meant == A); pending = false; took = use }
            finish(took)
        :: else
        fi
    fi
}

proctype forward()
{
    out;
    atomic {
        if
        :: use == 1 -> meant = B
        :: else
        fi;
#ifndef MUTANT_MARK_ANY_USE
        if
        :: generation == 1 && pending -> sent = B
        :: else
        fi
    }
#else
    }
    if
    :: generation == 1 -> sent = B
    :: else
    fi
#endif
}

proctype time()
{
    now = FAR
}

/* ---- the sweep ---- */

inline sweep_call()
{
    if
    :: atomic { pending -> expect = generation; took = use }
        d = deadline;
        if
        :: d <= now -> /* the exchange fails when the word is another */
            if
            :: atomic { pending && generation == expect -> pending = false }
                d_step { assert(deadline <= now); took = use }
                finish(took)
            :: else
            fi
        :: else -> least = d
        fi
    :: else
    fi;
    d_step { d = 0; expect = 0; took = 0 }
}

inline sweep_block()
{
    seen = earliest;
    if
    :: seen <= now ->
#ifdef MUTANT_EARLIEST_AFTER
        sweep_call();
        earliest = least
#else
        earliest = NEVER;
        sweep_call();
        atomic {
            if
            :: least < earliest -> earliest = least
            :: else
            fi
        }
#endif
    :: else -> least = seen
    fi;
    seen = 0
}

proctype sweep()
{
    byte d, least, seen, expect, took;
end:
    do
    :: atomic { is_set && timer <= now -> is_set = false }
        lock();
        sweeping = true;
        asked = NEVER;
        least = NEVER;
#ifndef MUTANT_TIMER_AFTER
        timer = NEVER;
#endif
        unlock();
        sweep_block();
        lock();
        sweeping = false;
#ifdef MUTANT_TIMER_AFTER
        timer = NEVER;
#endif
#ifndef MUTANT_ASKED_FORGOTTEN
        least = (asked < least -> asked : least);
#endif
        set_earlier(least);
        unlock();
        least = 0
    od
}

/* Nobody can do anything any more: who still waits has no deadline, and what it waits for is with
 * B. It comes then. */
proctype quiet()
{
    do
    :: timeout ->
        assert(!is_set || timer > now);
        if
        :: waiting ->
            assert(deadline == NEVER && meant == B && pending);
            d_step { pending = false; signalled = use }
        :: else -> break
        fi
    od;
    assert(use == USES && !pending && !locked)
}

init
{
    atomic {
        run caller();
        run respond();
        run lost();
        run forward();
        run time();
        run sweep();
        run quiet()
    }
}
