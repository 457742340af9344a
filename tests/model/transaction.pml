/* transaction.pml - grains/activation/lock.[ch], transaction.[ch] and participants.[ch]: are
 * transactions atomic and serializable, does a plain read see only what is stored, do locks never
 * wait for each other in a cycle, and is the root's answer true?
 * TXNS transactions read both grains, one after the other; one writes grain 0 or both, the other
 * writes grain 1 or both. Transaction 0 is older. If transaction 1 begins with grain 1, it then
 * makes a plain call (its method is not transactional) to grain 0, before it joins that grain to the
 * transaction. The roots are elsewhere and hold no lock. A
 * state is the set of the transactions that have written it.
 * FAULTS of these happen: a root or a grain's silo crashes, an activation ends, a root gives a call
 * up whose request arrives later, a deadline is over while the root goes on, a message that ends a
 * transaction is lost, the outcome of a batch is unknown. As the store's contract says, a batch has
 * ended when UNKNOWN is reported; one of a root that has crashed may still be written. One step per
 * message, turn and store operation.
 * seen, ok, refused and aside are ghosts. */

#define TXNS 2
#define ATTEMPTS 2
#define FAULTS 1

#define BIT(t) (1 << (t))
#define OF(t, g) ((t) * 2 + (g))
#define SLOT(t, g, a) (((t) * 2 + (g)) * ATTEMPTS + (a) - 1)
#define FREE 9 /* lock: nobody's */

mtype = { NOTHING, STARTED, DIED };                  /* replies */
mtype = { COMMIT, ABORT, RELOAD };                   /* ends; none: NOTHING */
mtype = { IN_FLIGHT, WRITTEN, CONFLICT, UNKNOWN };   /* a batch; none: NOTHING */

/* the store */
byte row[2], etag[2] = 1;
byte fence[2] = 1; /* of the silo where the grain is */

/* an activation, and what its lock keeps */
bool lives[2], down[2];
byte mem[2], known[2]; /* its state, and the etag of the row that it knows */
byte lock[2] = FREE, attempt_of[2], before[2];
bool wrote[2], touching[2];

/* messages; those of any attempt may overtake each other */
bool request[TXNS * 2 * ATTEMPTS];
byte plain; /* attempt of transaction 1 whose plain call goes to grain 0; 0: none */
mtype ending[TXNS * 2 * ATTEMPTS] = NOTHING;
mtype reply[TXNS] = NOTHING;
byte awaits[TXNS];  /* the attempt whose call the root awaits; 0: none */
byte current[TXNS]; /* the attempt that the root is in; 0: it has ended */

/* what the root has heard in this attempt: the grain's row, and what to write there */
byte heard[TXNS]; /* a bit for each grain */
byte heard_etag[TXNS * 2], heard_fence[TXNS * 2], heard_value[TXNS * 2];
mtype batch[TXNS] = NOTHING;

byte writes[TXNS]; /* a bit for each grain */
bool root_dead[TXNS];
byte ended; /* roots */
byte faults;

/* ghosts */
byte seen[TXNS * 2];
bool ok[TXNS], refused[TXNS]; /* what the root has answered: neither if that is unknown */
#ifdef MUTANT_BOTH_WAIT
bool aside[TXNS * 2];
#endif

/* ---- the root ---- */

inline send_end(g, step)
{
    if
    :: !(heard[t] & BIT(g)) || heard_fence[OF(t, g)] != fence[g] || down[g] /* it is not there */
    :: (heard[t] & BIT(g)) && faults < FAULTS -> faults++
    :: (heard[t] & BIT(g)) && heard_fence[OF(t, g)] == fence[g] && !down[g] ->
        ending[SLOT(t, g, attempt)] = step
    fi
}

inline tell(step)
{
    send_end(0, step);
    send_end(1, step)
}

/* A row that was written has the value that was tried. */
inline read_outcome(g)
{
    if
    :: !(writes[t] & BIT(g))
    :: (writes[t] & BIT(g)) && etag[g] == heard_etag[OF(t, g)] -> outcome = CONFLICT
    :: (writes[t] & BIT(g)) && etag[g] != heard_etag[OF(t, g)] && row[g] != heard_value[OF(t, g)] ->
        outcome = (outcome == WRITTEN -> UNKNOWN : outcome)
    :: else
    fi
}

inline begin_attempt()
{
    attempt++;
    current[t] = attempt;
    heard[t] = 0;
    seen[OF(t, 0)] = 0;
    seen[OF(t, 1)] = 0;
    heard_etag[OF(t, 0)] = 0;
    heard_etag[OF(t, 1)] = 0;
    heard_fence[OF(t, 0)] = 0;
    heard_fence[OF(t, 1)] = 0;
    heard_value[OF(t, 0)] = 0;
    heard_value[OF(t, 1)] = 0;
    batch[t] = NOTHING
}

/* out: lost: it has failed, or the root has given it up. */
inline call(g)
{
    reply[t] = NOTHING;
    awaits[t] = attempt;
    request[SLOT(t, g, attempt)] = true;
    if
    :: reply[t] == STARTED -> heard[t] = heard[t] | BIT(g)
    :: reply[t] == DIED -> lost = true
    fi;
    awaits[t] = 0;
    reply[t] = NOTHING
}

inline call_plainly()
{
    reply[t] = NOTHING;
    awaits[t] = attempt;
    plain = attempt;
    if
    :: reply[t] == STARTED
    :: reply[t] == DIED -> lost = true
    fi;
    awaits[t] = 0;
    reply[t] = NOTHING
}

/* A step lasts until the root waits. */
proctype root(byte t)
{
    byte attempt, first;
    bool lost;
    mtype outcome;
    {
        atomic {
            if
            :: first = 0
            :: t == 1 -> first = 1 /* grains are alike */
            fi;
            if
            :: writes[t] = BIT(t)
            :: writes[t] = 3
            fi;
            do
            :: attempt == ATTEMPTS -> refused[t] = true; goto done
            :: else ->
                begin_attempt();
                lost = false;
                call(first);
                if
                :: !lost && first == 1 -> call_plainly()
                :: else
                fi;
                if
                :: !lost -> call(1 - first)
                :: else
                fi;
                if
                :: lost -> tell(ABORT)
                :: else ->
                    batch[t] = IN_FLIGHT;
                    if
                    :: batch[t] == WRITTEN -> tell(COMMIT); ok[t] = true; goto done
                    :: batch[t] == CONFLICT -> tell(RELOAD)
                    :: batch[t] == UNKNOWN -> break
                    fi
                fi
            od
        }
        outcome = WRITTEN;
        atomic { read_outcome(0) }
        atomic {
            read_outcome(1);
            if
            :: outcome == WRITTEN -> tell(COMMIT); ok[t] = true
            :: outcome == CONFLICT -> tell(ABORT); refused[t] = true
            :: else /* RESOLVE: as if the deadline were over */
            fi
        }
done:
        skip
    } unless {
        root_dead[t] -> awaits[t] = 0
    }
    atomic {
        current[t] = 0;
        ended++
    }
}

/* ---- the store ---- */

#ifdef MUTANT_CHECK_ONLY_WRITTEN_ROWS
#define ETAG_FITS(t, g) (!(writes[t] & BIT(g)) || etag[g] == heard_etag[OF(t, g)])
#else
#define ETAG_FITS(t, g) (etag[g] == heard_etag[OF(t, g)])
#endif
#ifdef MUTANT_NO_FENCES
#define FENCE_FITS(t, g) true
#else
#define FENCE_FITS(t, g) (fence[g] == heard_fence[OF(t, g)])
#endif
#define FITS(t) (ETAG_FITS(t, 0) && ETAG_FITS(t, 1) && FENCE_FITS(t, 0) && FENCE_FITS(t, 1))

inline write_rows(t)
{
    for (g : 0 .. 1) {
        if
#ifdef MUTANT_NOT_ATOMIC
        :: (writes[t] & BIT(g)) && writes[t] == 3 && g == 1
#endif
        :: writes[t] & BIT(g) -> row[g] = heard_value[OF(t, g)]; etag[g]++
        :: else
        fi
    }
    g = 0
}

proctype store(byte t)
{
    byte g;
end:
    do
    :: atomic {
            batch[t] == IN_FLIGHT ->
            if
            :: FITS(t) -> write_rows(t); batch[t] = WRITTEN
            :: FITS(t) && faults < FAULTS -> write_rows(t); faults++; batch[t] = UNKNOWN
            :: faults < FAULTS -> faults++; batch[t] = UNKNOWN
            :: !FITS(t) || root_dead[t] -> batch[t] = CONFLICT
            fi
        }
    od
}

/* ---- a grain ---- */

inline release(g)
{
    lock[g] = FREE;
    attempt_of[g] = 0;
    before[g] = 0;
    wrote[g] = false
}

inline roll_back(g)
{
    mem[g] = before[g];
    release(g)
}

inline deactivate(g)
{
    lives[g] = false;
    mem[g] = 0;
    known[g] = 0;
    touching[g] = false;
    release(g)
}

/* The turn: it reads, writes if it is to, and responds. */
inline start(t, g, a)
{
    if
    :: lock[g] == FREE -> before[g] = mem[g]
    :: else
    fi;
    lock[g] = t;
    attempt_of[g] = a;
    request[SLOT(t, g, a)] = false;
    if
    :: awaits[t] == a ->
        assert(!(mem[g] & BIT(t))); /* what an earlier attempt wrote */
        seen[OF(t, g)] = mem[g]
    :: else
    fi;
    if
    :: writes[t] & BIT(g) -> mem[g] = mem[g] | BIT(t); wrote[g] = true
    :: else
    fi;
    if
    :: awaits[t] == a && reply[t] == NOTHING ->
        reply[t] = STARTED;
        heard_etag[OF(t, g)] = known[g];
        heard_fence[OF(t, g)] = fence[g];
        heard_value[OF(t, g)] = mem[g]
    :: else
    fi
}

inline die(t, g, a)
{
    request[SLOT(t, g, a)] = false;
    if
    :: awaits[t] == a && reply[t] == NOTHING -> reply[t] = DIED
    :: else
    fi
}

/* By the table in lock.h. A request that waits stays where it is. */
inline judge(t, g, a)
{
    if
    :: lock[g] == FREE -> start(t, g, a)
    :: lock[g] == t && attempt_of[g] > a -> die(t, g, a)
    :: lock[g] == t && attempt_of[g] < a ->
#ifdef MUTANT_KEEP_EARLIER_ATTEMPT
        attempt_of[g] = a;
#else
        roll_back(g);
#endif
        start(t, g, a)
#ifdef MUTANT_BOTH_WAIT
    :: lock[g] != FREE && lock[g] != t ->
        aside[OF(t, g)] = true;
        assert(!(aside[OF(0, 1)] && lock[1] == 1 && aside[OF(1, 0)] && lock[0] == 0))
#else
    :: lock[g] < t -> die(t, g, a)
#endif
    fi
}

inline answer_plain(answer)
{
    if
    :: awaits[1] == plain && reply[1] == NOTHING -> reply[1] = answer
    :: else
    fi;
    plain = 0
}

/* The plain call of transaction 1, at grain 0. */
inline judge_plain()
{
    if
    :: lock[0] == FREE -> answer_plain(STARTED)
    :: lock[0] == 1 && attempt_of[0] < plain -> roll_back(0)
    :: lock[0] == 0 || (lock[0] == 1 && attempt_of[0] >= plain) -> answer_plain(DIED)
    fi
}

#ifdef MUTANT_PLAIN_WAITS
#define MAY_JUDGE_PLAIN (lock[0] != 0)
#else
#define MAY_JUDGE_PLAIN true
#endif
#define CAN_ANSWER_PLAIN(g) (g == 0 && lives[0] && !touching[0] && plain && MAY_JUDGE_PLAIN)

#ifdef MUTANT_END_OF_ANY_ATTEMPT
#define IS_OF(t, g, a) (lock[g] == t)
#else
#define IS_OF(t, g, a) (lock[g] == t && attempt_of[g] == a)
#endif

inline handle_end(t, g, a)
{
    if
    :: !IS_OF(t, g, a)
    :: IS_OF(t, g, a) && ending[SLOT(t, g, a)] == COMMIT ->
        if
        :: wrote[g] -> known[g] = heard_etag[OF(t, g)] + 1
        :: else
        fi;
        release(g)
    :: IS_OF(t, g, a) && ending[SLOT(t, g, a)] == ABORT && !touching[g] -> roll_back(g)
    :: IS_OF(t, g, a) && ending[SLOT(t, g, a)] == RELOAD -> deactivate(g)
    fi;
    ending[SLOT(t, g, a)] = NOTHING
}

inline lose_messages(g)
{
    if
    :: g == 0 && plain -> answer_plain(DIED)
    :: else
    fi;
    for (t : 0 .. TXNS - 1) {
        for (a : 1 .. ATTEMPTS) {
            if
            :: request[SLOT(t, g, a)] -> die(t, g, a)
            :: else
            fi;
            ending[SLOT(t, g, a)] = NOTHING
        }
    }
    t = 0;
    a = 0
}

/* The root has ended or begun again, or is late. */
#define SILENT(g) (lives[g] && lock[g] != FREE && \
                   (current[lock[g]] != attempt_of[g] || faults < FAULTS))

inline be_late(g)
{
    if
    :: current[lock[g]] == attempt_of[g] -> faults++
    :: else
    fi
}

#ifdef MUTANT_BOTH_WAIT
#define MAY_JUDGE(t, g) (!aside[OF(t, g)] || lock[g] == FREE || lock[g] == t)
#else
#define MAY_JUDGE(t, g) (lock[g] == FREE || lock[g] <= t)
#endif
#define CAN_JOIN(t, g, a) (lives[g] && !touching[g] && request[SLOT(t, g, a)] && MAY_JUDGE(t, g))
#define CAN_END(t, g, a) (lives[g] && ending[SLOT(t, g, a)] != NOTHING && \
                          !(touching[g] && ending[SLOT(t, g, a)] == ABORT))

#ifdef MUTANT_END_WHILE_LOCKED
#define CAN_MOVE(g) (!touching[g])
#else
#define CAN_MOVE(g) (!touching[g] && !wrote[g])
#endif

proctype grain(byte g)
{
    byte t, a;
end:
    do
    :: atomic { !lives[g] && !down[g] -> lives[g] = true; mem[g] = row[g]; known[g] = etag[g] }
    :: atomic { CAN_JOIN(0, g, 1) -> judge(0, g, 1) }
    :: atomic { CAN_JOIN(0, g, 2) -> judge(0, g, 2) }
    :: atomic { CAN_JOIN(1, g, 1) -> judge(1, g, 1) }
    :: atomic { CAN_JOIN(1, g, 2) -> judge(1, g, 2) }
    :: atomic { CAN_ANSWER_PLAIN(g) -> judge_plain() }
    :: atomic { CAN_END(0, g, 1) -> handle_end(0, g, 1) }
    :: atomic { CAN_END(0, g, 2) -> handle_end(0, g, 2) }
    :: atomic { CAN_END(1, g, 1) -> handle_end(1, g, 1) }
    :: atomic { CAN_END(1, g, 2) -> handle_end(1, g, 2) }
    /* the deadline is over: a lock that saves nothing needs no touch */
    :: atomic { SILENT(g) && !wrote[g] -> be_late(g); release(g) }
#ifdef MUTANT_FORGET_WITHOUT_TOUCH
    :: atomic { SILENT(g) && wrote[g] -> be_late(g); roll_back(g) }
#else
    :: atomic {
            SILENT(g) && wrote[g] && !touching[g] ->
            be_late(g);
            if
            :: etag[g] != known[g] -> deactivate(g)
            :: else -> touching[g] = true
            fi
        }
#endif
    :: atomic {
            lives[g] && touching[g] ->
            touching[g] = false;
            if
            :: etag[g] == known[g] ->
                etag[g]++;
                known[g] = etag[g];
                if
                :: lock[g] != FREE -> roll_back(g)
                :: else
                fi
            :: etag[g] != known[g] && lock[g] != FREE -> deactivate(g)
            :: else
            fi
        }
    /* the activation ends, and moves perhaps */
    :: atomic { lives[g] && faults < FAULTS && CAN_MOVE(g) -> faults++; deactivate(g) }
    /* a plain read */
#ifdef MUTANT_PLAIN_READ_OF_LOCKED
    :: atomic { lives[g] && !touching[g] -> assert(mem[g] == row[g]) }
#else
    :: atomic { lives[g] && !touching[g] && lock[g] == FREE -> assert(mem[g] == row[g]) }
#endif
    :: atomic {
            lives[g] && faults < FAULTS ->
            faults++;
            deactivate(g);
            down[g] = true;
            lose_messages(g)
        }
    /* the silo is declared dead */
    :: atomic { down[g] -> fence[g]++; down[g] = false }
    od
}

/* ---- the end ---- */

#define COMMITTED(t) (((writes[t] & 1) && (row[0] & BIT(t))) || \
                      ((writes[t] & 2) && (row[1] & BIT(t))))
#define WROTE_ALL(t) ((!(writes[t] & 1) || (row[0] & BIT(t))) && \
                      (!(writes[t] & 2) || (row[1] & BIT(t))))
/* t read what u wrote: everywhere, nowhere */
#define SAW_ALL(t, u) ((!(writes[u] & 1) || (seen[OF(t, 0)] & BIT(u))) && \
                       (!(writes[u] & 2) || (seen[OF(t, 1)] & BIT(u))))
#define SAW_NONE(t, u) (!(seen[OF(t, 0)] & BIT(u)) && !(seen[OF(t, 1)] & BIT(u)))

init
{
    atomic {
        run root(0);
        run root(1);
        run store(0);
        run store(1);
        run grain(0);
        run grain(1)
    }
    do
    :: atomic { faults < FAULTS && !root_dead[0] -> faults++; root_dead[0] = true }
    :: atomic { faults < FAULTS && !root_dead[1] -> faults++; root_dead[1] = true }
    /* the root gives a call up, whose request may arrive later */
    :: atomic { faults < FAULTS && awaits[0] && reply[0] == NOTHING -> faults++; reply[0] = DIED }
    :: atomic { faults < FAULTS && awaits[1] && reply[1] == NOTHING -> faults++; reply[1] = DIED }
    :: ended == TXNS && batch[0] != IN_FLIGHT && batch[1] != IN_FLIGHT -> break
    od;
    atomic {
        byte t;
        for (t : 0 .. TXNS - 1) {
            assert(!COMMITTED(t) || WROTE_ALL(t));
            assert(!ok[t] || COMMITTED(t));
            assert(!refused[t] || !COMMITTED(t));
            assert(COMMITTED(1 - t) || !COMMITTED(t) || SAW_NONE(t, 1 - t))
        }
        if
        :: COMMITTED(0) && COMMITTED(1) ->
            assert((SAW_ALL(0, 1) && SAW_NONE(1, 0)) || (SAW_NONE(0, 1) && SAW_ALL(1, 0)))
        :: else
        fi
    }
}
