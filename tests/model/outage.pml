/* outage.pml - runtime/cluster/promise.c: is silo S ever written dead while its lease holds, if the
 * promises of others extend the lease during an outage of the store?
 * View 1 has 2 or 3 silos, S included; view 2 has a joiner, too. Each step is a choice, so this
 * covers all patterns of who reaches the store and when, and all lost and late messages. The times
 * are those that are left, and the shortest ones: 1.05 L by a fast clock is L, and a longer wait is
 * a later step. A round of requests replaces an earlier one: of two that overlap, S needs only one.
 * Left out, because it only prevents grants: a silo that reaches the store grants nothing. A silo
 * that restarts takes no more steps here. The store writes no beat after a later one. */

#define BEATS 3 /* the first is confirmed when S has joined */
#define L 2
#define E 2
#define SILENT 3 /* 1.5 L */
#define OTHERS 3 /* at most, the joiner included */

byte n; /* silos of view 1, S included */

/* Silos of a view, S included. The others are 0 .. SIZE - 2; the joiner is the last of view 2. */
#define SIZE(view) (n - 1 + (view))
#define IN(x, view) ((x) < SIZE(view) - 1)
#define BIT(b) (1 << (b))

/* the store: S's heartbeat. Each beat is written once, so its number stands for the etag. */
byte row = 1;
byte view_of[BEATS + 1] = 1; /* of a beat */
byte under_way;              /* a bit for each beat that was sent and is not written */
bool dead;

/* S: its lease, the last beat that was confirmed, and the last one that was sent. The limits: L + E
 * after the beat was sent. */
byte lease = L;
byte confirmed = 1, limit = L + E;
byte attempted = 1, attempt_limit;
byte adopted = 1; /* a view */
bool mixed;       /* an attempt after the confirmed beat had another view */

/* a round of requests: the lease if it is granted, 0: there is none; the beat that S asks for, its
 * view, a bit for each silo that has granted it */
byte asked_lease, asked_beat, asked_view, granted;

/* the other silos */
byte promised[OTHERS]; /* consents to nothing for so long */
byte denied[OTHERS];   /* grants nothing for this beat and earlier ones */
byte consent[OTHERS];  /* the last beat for which it has consented */

/* D, any silo but S: the beat that it has seen; L + E, less the time for which that stands still */
byte seen, still;

bool extended; /* ghost */

#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define LESS(time) time = ((time) -> (time) - 1 : 0)

inline end_round()
{
    asked_lease = 0;
    asked_beat = 0;
    asked_view = 0;
    granted = 0
}

/* out: total: how many members x of the view, without S, there are for whom `has` is true. */
inline count(view, has)
{
    total = 0;
    for (x : 0 .. OTHERS - 1) {
        total = total + (IN(x, view) && (has))
    }
    x = 0
}

proctype clock()
{
    byte x;
end:
    do
    :: d_step {
            lease || limit || attempt_limit || asked_lease || still || promised[0] || promised[1] ||
                promised[2] ->
            LESS(lease);
            LESS(limit);
            LESS(attempt_limit);
            LESS(asked_lease);
            if
            :: asked_lease == 0 -> end_round()
            :: else
            fi;
            LESS(still);
            for (x : 0 .. OTHERS - 1) {
                LESS(promised[x])
            }
            x = 0
        }
    od
}

proctype store()
{
    byte b;
end:
    do
    :: atomic {
            !dead && under_way ->
            select (b : 2 .. BEATS);
            if
#ifdef MUTANT_OLD_BEAT_OVERWRITES
            :: under_way & BIT(b) -> row = b; under_way = under_way & ~BIT(b)
#else
            :: b > row && (under_way & BIT(b)) -> row = b; under_way = under_way & ~BIT(b)
#endif
            :: else
            fi;
            b = 0
        }
    od
}

#ifdef MUTANT_FEWER_GRANTS
#define GRANTS(view) (SIZE(view) / 2 - 1)
#else
#define GRANTS(view) (SIZE(view) / 2)
#endif
#ifdef MUTANT_ATTEMPT_OF_ANOTHER_VIEW
#define CERTAIN true
#else
#ifdef MUTANT_TIME_READ_AFTER_THE_CHECK
bool certain;
#define CERTAIN certain
#else
#define CERTAIN (!mixed)
#endif
#endif

proctype silo()
{
    byte x, total;
end:
    do
    :: atomic { /* a heartbeat; the earlier one, if it is not confirmed, is given up */
            lease && attempted < BEATS ->
            if
            :: adopted = 2
            :: skip
            fi;
            attempted++;
            attempt_limit = L + E;
            under_way = under_way | BIT(attempted);
            view_of[attempted] = adopted;
            mixed = mixed || adopted != view_of[confirmed]
        }
    :: d_step {
            confirmed < attempted && !(under_way & BIT(attempted)) ->
            confirmed = attempted;
            limit = attempt_limit;
            lease = MAX(lease, MAX(attempt_limit, E) - E);
            attempt_limit = 0;
            mixed = false;
            assert(!dead || !lease)
        }
#ifdef MUTANT_TIME_READ_AFTER_THE_CHECK
    :: certain = !mixed
#endif
    :: d_step {
            lease && limit && CERTAIN ->
            asked_lease = MIN(L, limit);
#ifdef MUTANT_LAST_ATTEMPT_PROMISED
            asked_beat = attempted;
#else
            asked_beat = confirmed;
#endif
            asked_view = view_of[confirmed];
            granted = 0
        }
    :: d_step {
            asked_lease ->
            count(asked_view, granted & BIT(x));
            if
            :: total >= GRANTS(asked_view) ->
#ifdef MUTANT_LEASE_SINCE_THE_GRANT
                lease = MAX(lease, MIN(L, limit));
#else
                extended = extended || asked_lease > lease;
                lease = MAX(lease, asked_lease);
#endif
#ifdef MUTANT_NEVER_EXTENDED
                assert(!extended);
#endif
                end_round();
                assert(!dead || !lease)
            :: else
            fi;
            total = 0
        }
    od
}

#ifdef MUTANT_VIEW_OF_ITS_OWN
#define D_VIEW 2
#else
#define D_VIEW view_of[seen]
#endif
#ifdef MUTANT_GRANT_AFTER_DENIAL
#define MAY_GRANT(x) true
#else
#define MAY_GRANT(x) (asked_beat > denied[x])
#endif
#ifdef MUTANT_CONSENT_IN_SPITE_OF_PROMISE
#define MAY_CONSENT(x) true
#else
#define MAY_CONSENT(x) (!promised[x])
#endif

proctype other(byte x)
{
end:
    do
    :: d_step {
            asked_lease && IN(x, asked_view) && !(granted & BIT(x)) && MAY_GRANT(x) ->
            promised[x] = L;
            granted = granted | BIT(x)
        }
    :: d_step {
            seen && IN(x, D_VIEW) && consent[x] != seen && MAY_CONSENT(x) ->
            consent[x] = seen;
            denied[x] = MAX(denied[x], seen)
        }
#ifdef MUTANT_DENIAL_FORGOTTEN
    :: denied[x] = 0
#endif
    od
}

#ifdef MUTANT_FEWER_CONSENTS
#define CONSENTS(view) ((SIZE(view) + 1) / 2 - 1)
#else
#define CONSENTS(view) ((SIZE(view) + 1) / 2)
#endif
#ifdef MUTANT_SLOW_WITHOUT_OUTAGE_TIME
#define SLOW (still <= L + E - SILENT)
#else
#define SLOW (still == 0)
#endif
#ifdef MUTANT_ETAG_NOT_COMPARED
#define SAME true
#else
#define SAME (seen == row)
#endif

proctype burier()
{
    byte x, total;
end:
    do
    :: d_step { !dead && seen != row -> seen = row; still = L + E }
    :: d_step {
            !dead && seen && still <= E && SAME ->
            count(D_VIEW, consent[x] == seen);
            if
            :: SLOW || total >= CONSENTS(D_VIEW) ->
#ifdef MUTANT_NEVER_FAST
                assert(SLOW || !extended);
#endif
                dead = true;
                assert(!lease)
            :: else
            fi;
            total = 0
        }
    od
}

init
{
    atomic {
        select (n : 2 .. 3);
        run clock();
        run store();
        run silo();
        run other(0);
        run other(1);
        run other(2);
        run burier()
    }
}
