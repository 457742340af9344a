/* reader.pml - runtime/link/conn/client_reader.c, with its callers in link/driver.c,
 * call/wait.c, and the parker's two tokens: is each connection's next read always somebody's, and
 * only one's; does each thread that waits get its response without the ticker's help; does nobody
 * touch a reader, or a context, that may be gone?
 * Two threads wait for a response each, one of them ROUNDS times, which comes on either of two
 * connections at any time after they asked; several may come in one read. A read brings little or
 * much, as it likes, and so a giver may tell what came itself, beside a reader that is known. The
 * transport has a thread for each connection. The ticker looks TICKS times while threads have
 * something to wait for, so that what only it would save is seen as a deadlock, and as often as it
 * is told afterwards. One step per atomic operation; the kernel's look at the word is one with the
 * one before it. */

#define ROUNDS 2
#define TICKS 2

/* whose the next read of a connection is: a thread's, 0 or 1, or */
#define NNG 2    /* armed */
#define RECV 3   /* in the callback's hands */
#define PUT 4    /* in reads */
#define TICKER 5

#define EMPTY 0
#define TOKEN 1
#define ASLEEP 2
#define GIVEN 4

#define NONE 9

byte whose[2] = NNG;
byte socket[2]; /* responses that have come, a bit for each thread */
byte batch[2];  /* read, and not told yet */

/* the link */
byte reader = NONE; /* the thread whose reader is known */
byte reading;
byte reads; /* a bit for each connection */
bool young; /* reads_deferred is another than at the ticker's last look */
bool due;

/* a thread's */
byte parker[2];
bool in_kernel[2];
byte given[2] = NONE;
bool held[2]; /* its reader, by a giver, that may touch it */
bool asked[2], answered[2], freed[2];

byte done, ticks;
/* of the ticker since it was deferred and counted; not while a thread is just at it */
byte looks[2];
byte giving;

#define bit(i) (1 << (i))

/* Within a step; what a late wake in the kernel may meet is wait.pml's. */
inline leave(t, token)
{
    assert(!freed[t]);
    if
    :: parker[t] == ASLEEP -> in_kernel[t] = false
    :: else
    fi;
#ifdef MUTANT_EXCHANGE
    parker[t] = token
#else
    parker[t] = parker[t] | token
#endif
}

/* Two threads' tokens: between them nothing can be seen. */
inline tell(c)
{
    d_step {
        if
        :: batch[c] & bit(0) ->
            assert(!answered[0]);
            answered[0] = true;
            leave(0, TOKEN)
        :: else
        fi;
        if
        :: batch[c] & bit(1) ->
            assert(!answered[1]);
            answered[1] = true;
            leave(1, TOKEN)
        :: else
        fi;
        batch[c] = 0
    }
}

inline arm(c, who)
{
    d_step {
        assert(whose[c] == who);
        whose[c] = NNG
    }
}

/* go_on_with(link, false) */
inline arm_all(who)
{
    if
    :: reads == 0
    :: else ->
        d_step {
            all = reads;
            reads = 0;
            if
            :: all & 1 -> assert(whose[0] == PUT); whose[0] = who; looks[0] = 0
            :: else
            fi;
            if
            :: all & 2 -> assert(whose[1] == PUT); whose[1] = who; looks[1] = 0
            :: else
            fi
        }
        if
        :: all & 1 -> arm(0, who)
        :: else
        fi;
        if
        :: all & 2 -> arm(1, who)
        :: else
        fi;
        all = 0
    fi
}

inline tell_ticker()
{
    if
    :: due
    :: else -> due = true
    fi
}

inline later(c)
{
    if
    :: reading > 1 -> arm(c, me)
    :: else ->
        d_step {
            assert(whose[c] == me);
            assert(!(reads & bit(c)));
            whose[c] = PUT;
            reads = reads | bit(c)
        }
        d_step {
            young = true;
            looks[c] = 0
        }
#ifdef MUTANT_PUT_BLIND
        tell_ticker()
#else
        if
        :: reading > 1 -> arm_all(me)
        :: else -> tell_ticker()
        fi
#endif
    fi
}

/* What came is told; much of it: read on later. */
inline go_on(c)
{
    tell(c);
    if
    :: arm(c, me)
    :: true -> later(c)
    fi
}

/* go_on_with(link, true) */
inline read_on()
{
    if
    :: reads == 0
    :: else ->
        d_step {
            mine = reads;
            reads = 0;
            if
            :: mine & 1 -> assert(whose[0] == PUT); whose[0] = me; looks[0] = 0
            :: else
            fi;
            if
            :: mine & 2 -> assert(whose[1] == PUT); whose[1] = me; looks[1] = 0
            :: else
            fi
        }
        do
        :: mine == 0 -> break
        :: else ->
            d_step {
                conn = (mine & 1 -> 0 : 1);
                mine = mine & ~bit(conn)
            }
            if
            :: d_step { socket[conn] -> batch[conn] = socket[conn]; socket[conn] = 0 }
                go_on(conn)
            :: socket[conn] == 0 -> arm(conn, me)
            fi
        od;
        conn = 0
    fi
}

inline read_begin()
{
#ifdef MUTANT_LOOK_FIRST
    read_on();
    reading++;
#else
    reading++;
#endif
    d_step {
        known = (reader == NONE);
        if
        :: known -> reader = me
        :: else
        fi
    }
#ifdef MUTANT_LOOK_ONCE
    read_on()
#else
#ifndef MUTANT_LOOK_FIRST
    do
    :: true ->
        read_on();
        if
        :: reads == 0 -> break
        :: else
        fi;
        if
        :: parker[me] & (TOKEN | GIVEN) -> break
        :: else
        fi
    od
#endif
#endif
}

inline take()
{
    d_step {
        tokens = tokens | (parker[me] & ~ASLEEP);
        parker[me] = EMPTY
    }
}

inline sleep()
{
    if
    :: atomic { parker[me] == EMPTY -> parker[me] = ASLEEP; in_kernel[me] = true }
        !in_kernel[me]
    :: atomic { parker[me] != EMPTY -> skip }
    fi;
    take()
}

/* mine: it has taken the reader back. */
inline withdraw()
{
#ifdef MUTANT_WITHDRAW_APART
    mine = (reader == me);
    if
    :: mine -> reader = NONE
    :: else
    fi
#else
    d_step {
        mine = (known && reader == me);
        if
        :: mine -> reader = NONE
        :: else
        fi
    }
#endif
    if
    :: !known -> mine = 1
    :: else
    fi
}

inline read_end()
{
    withdraw();
    if
    :: mine
    :: else ->
#ifndef MUTANT_GIVEN_UNAWAITED
        do
        :: tokens & GIVEN -> break
        :: else -> sleep()
        od;
#endif
        conn = given[me];
        given[me] = NONE;
        assert(conn != NONE);
        go_on(conn);
        conn = 0
    fi;
    mine = 0;
    reading--
}

proctype thread(byte me)
{
    byte round, all, mine, conn, tokens;
    bool known;
    do
    :: round == ROUNDS - me -> break
    :: else ->
        d_step {
            answered[me] = false;
            asked[me] = true
        }
        tokens = 0;
        do
#ifdef MUTANT_ANY_TOKEN
        :: tokens -> break
        :: tokens == 0 ->
#else
        :: tokens & TOKEN -> break
        :: !(tokens & TOKEN) ->
#endif
            tokens = 0;
            read_begin();
            sleep();
            read_end();
            assert(!held[me]); /* it is gone */
            take()
        od;
        round++;
        assert(answered[me] && parker[me] == EMPTY)
    od;
    freed[me] = true;
    done++
}

/* The other side: a response comes on either connection. */
proctype peer(byte t)
{
end:
    do
    :: atomic { asked[t] -> asked[t] = false; socket[0] = socket[0] | bit(t) }
    :: atomic { asked[t] -> asked[t] = false; socket[1] = socket[1] | bit(t) }
    od
}

/* The receive callback. */
proctype recv(byte c)
{
    byte to;
end:
    do
    :: d_step {
            whose[c] == NNG && socket[c] ->
            whose[c] = RECV;
            batch[c] = socket[c];
            socket[c] = 0
        }
        to = NONE;
        if
        :: true /* nobody is known; or it was little, and others wait as well */
        :: reader != NONE ->
            d_step {
                to = reader;
                reader = NONE;
                if
                :: to != NONE -> held[to] = true; giving++
                :: else
                fi
            }
        fi;
        if
        :: to == NONE ->
            tell(c);
            arm(c, RECV)
        :: else ->
#ifdef MUTANT_TOKEN_FIRST
            d_step { leave(to, GIVEN) }
#endif
            d_step {
                assert(given[to] == NONE);
                given[to] = c;
                whose[c] = to
            }
            d_step { /* it has read where the parker is */
                held[to] = false;
#ifndef MUTANT_TOKEN_FIRST
                leave(to, GIVEN);
#endif
                giving--
            }
        fi;
        to = 0
    od
}

proctype ticker()
{
    byte all;
    bool old, quiet;
end:
    do
    :: due && (ticks < TICKS || done == 2) ->
        d_step { /* within a millisecond after it was told */
            quiet = (!giving && reading == in_kernel[0] + in_kernel[1]);
            ticks = (done == 2 -> TICKS : ticks + 1);
            looks[0] = (whose[0] == PUT -> looks[0] + quiet : 0);
            looks[1] = (whose[1] == PUT -> looks[1] + quiet : 0);
            quiet = false;
            assert(looks[0] < 3 && looks[1] < 3);
#ifndef MUTANT_DUE_LATE
            due = false
#endif
        }
        d_step {
            old = !young;
            young = false
        }
#ifndef MUTANT_TICKER_IDLE
        if
        :: old -> arm_all(TICKER)
        :: else
        fi;
#endif
#ifdef MUTANT_DUE_LATE
        due = !old
#else
        if
        :: !old -> due = true
        :: else
        fi
#endif
    od
}

/* When nobody waits any more, all reads are the transport's in the end. */
active proctype ends()
{
    atomic {
        run peer(0);
        run peer(1);
        run recv(0);
        run recv(1);
        run ticker();
        run thread(0);
        run thread(1)
    }
    done == 2;
    assert(reading == 0 && reader == NONE);
    whose[0] == NNG && whose[1] == NNG && reads == 0 && !due
}
