/* deadlock.pml - grains/request/deadlock.[ch]: does each cycle of waiting grains lose exactly one
 * request, and is no request reported that was not part of a cycle?
 * Each of GRAINS grains has one turn, which makes a call to any grain; that of grain 1 makes up to
 * two, one after the other. A request to a grain whose turn runs is set aside. A turn waits for its call, or for the
 * first of this call and another one, which ends at any time. DEADLINES calls end at their
 * deadline, at any time. A grain with a request set aside sends a probe, EARLY times at any time,
 * and LATE times when nothing else happens; LOSSES probes are lost. One step for each activation
 * that a probe reaches. A grain's number is its PID.
 * was_cycle, is_new and reported are ghosts. */

#define GRAINS 3
#define CALLS(g) (g == 1 -> 2 : 1)
#define EARLY 1
#ifdef MUTANT_LOST_PROBE_NOT_REPEATED
#define LATE 0
#else
#define LATE 2
#endif

#define NONE GRAINS

byte target[GRAINS] = NONE; /* of the call for which the turn waits */
byte generation[GRAINS];    /* of its newest call */
bool any[GRAINS];           /* it waits for this call or another one */
bool ended[GRAINS + 1];     /* the turn; that of NONE never does */
byte deadlines, losses;
byte late[GRAINS];          /* probes since the last report */

byte reported[GRAINS]; /* the generation of its call that was in a reported cycle */

#define WAITS(g) (target[g] != NONE && !any[g])
#ifdef MUTANT_FOLLOWS_ANY
#define FOLLOWS(g) (target[g] != NONE)
#else
#define FOLLOWS(g) WAITS(g)
#endif
#ifdef MUTANT_GENERATION_IGNORED
#define STILL_WAITS(g, was) FOLLOWS(g)
#else
#define STILL_WAITS(g, was) (FOLLOWS(g) && generation[g] == was)
#endif
#define HAS_ASIDE(g) (target[0] == g || target[1] == g || target[2] == g)

proctype turn(byte g)
{
    byte calls;
    do
    :: calls < CALLS(g) ->
        atomic {
            calls++;
            if
            :: target[g] = 0
            :: target[g] = 1
            :: target[g] = 2
            fi;
            generation[g]++;
            if
            :: any[g] = false
            :: any[g] = true
            fi
        }
        if
        :: target[g] == NONE /* TEFF_E_DEADLOCK */
        :: d_step { ended[target[g]] -> target[g] = NONE }
        :: d_step { target[g] != NONE && any[g] -> target[g] = NONE }
        :: d_step { target[g] != NONE && deadlines > 0 -> deadlines--; target[g] = NONE }
        fi
    :: break
    od;
    ended[g] = true
}

/* Do all calls of the path wait now? */
inline look_at_cycle()
{
    was_cycle = true;
    k = 0;
    do
    :: k == n -> break
    :: k < n ->
        was_cycle = was_cycle && WAITS(path[k]) && generation[path[k]] == seen[k];
        k++
    od
}

/* The last turn of the path waits for the request that ends. */
inline end_request()
{
    assert(was_cycle);
    is_new = false;
    k = 0;
    do
    :: k == n -> break
    :: k < n ->
        is_new = is_new || reported[path[k]] != seen[k];
        reported[path[k]] = seen[k];
        k++
    od;
    assert(is_new); /* else this cycle has lost a request already */
    if
    :: generation[path[n - 1]] == seen[n - 1] -> target[path[n - 1]] = NONE
    :: else /* the call had ended meanwhile */
    fi;
    late[0] = 0;
    late[1] = 0;
    late[2] = 0
}

proctype prober(byte i)
{
    byte path[GRAINS], seen[GRAINS];
    byte n, at, k, early;
    bool was_cycle, is_new;
again:
    atomic { n = 0; at = 0; k = 0; was_cycle = false; is_new = false }
end:
    do
    :: early < EARLY && HAS_ASIDE(i) -> early++; goto first_round
    :: timeout && late[i] < LATE && HAS_ASIDE(i) -> late[i]++; goto first_round
    :: ended[i] -> goto done
    od;

first_round:
    at = i;
    do
    :: d_step {
            at == i && n > 0 ->
            look_at_cycle();
            if
            :: FOLLOWS(i) && generation[i] == seen[0] -> at = NONE
            :: else
            fi
        }
        break
    :: atomic {
            at != i || n == 0 ->
            k = n;
            if
            :: !FOLLOWS(at) -> goto again
            :: n == GRAINS -> goto again /* a cycle without i */
#ifndef MUTANT_EACH_PROBE_ENDS_A_REQUEST
            :: FOLLOWS(at) && at < i -> goto again /* at sends a probe of its own */
#endif
            :: else ->
                path[n] = at;
                seen[n] = generation[at];
                n++;
                at = target[at]
            fi
        }
        if
        :: atomic { losses > 0 -> losses--; goto again }
        :: true
        fi
    od;
    if
    :: at != NONE -> goto again
    :: else
    fi;

#ifndef MUTANT_ONE_ROUND
    at = 0;
    do
    :: at == n -> break
    :: at < n ->
#ifndef MUTANT_SECOND_ROUND_LOOKS_AT_NOTHING
        if
        :: STILL_WAITS(path[at], seen[at]) -> at++
        :: else -> goto again
        fi;
#else
        at++;
#endif
        if
        :: atomic { losses > 0 -> losses--; goto again }
        :: true
        fi
    od;
#endif
    atomic {
        if
        :: STILL_WAITS(i, seen[0]) -> end_request()
        :: else
        fi
    }
    goto again;
done:
    skip
}

init
{
    atomic {
        if
        :: deadlines = 0; losses = 1
        :: deadlines = 1; losses = 0
        fi;
        run turn(0);
        run turn(1);
        run turn(2);
        run prober(0);
        run prober(1);
        run prober(2)
    }
}
