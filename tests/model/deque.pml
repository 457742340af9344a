/* deque.pml - owner's pop beside thieves that claim a batch with one CAS, as runtime/sched/queue/deque.c.
 * Each item is taken exactly once. One step per atomic operation; the memory is sequentially
 * consistent, as the operations in question are. Batches are at most BATCH, the owner is near the
 * top below NEAR. Two thieves, an owner that pushes and pops as it likes, then pops all.
 * Beside explore/scene_deque.c: every interleaving, but few items and no growth. */

#define ITEMS 5
#define BATCH 2
#ifdef MUTANT_PLAIN_POP
#define NEAR 1
#else
#define NEAR BATCH
#endif
#define THIEVES 2
#define STEALS 2 /* tries of each thief */

byte top, tag, bottom;
byte slot[ITEMS + 1];     /* item numbers by index; indices of items given back are used again */
byte taken[ITEMS + 1];
byte pushed;

inline take(item)
{
    d_step { taken[item]++; assert(taken[item] == 1) }
}

proctype thief()
{
    byte tries, t, g, b, n, held[BATCH + 1];
    do
    :: tries < STEALS ->
        tries++;
#ifdef MUTANT_BOTTOM_FIRST
        b = bottom;
        d_step { t = top; g = tag }
#else
        d_step { t = top; g = tag } /* one word */
        b = bottom;
#endif
        if
        :: b <= t
        :: else ->
            d_step {
                n = (b - t + 1) / 2;
                if
#ifdef MUTANT_UNBOUNDED_BATCH
                :: n > BATCH + 1 -> n = BATCH + 1
#else
                :: n > BATCH -> n = BATCH
#endif
                :: else
                fi
            }
            d_step { /* what is read here counts only if the claim succeeds */
                held[0] = slot[t];
                if
                :: n > 1 -> held[1] = slot[t + 1]
                :: else
                fi;
                if
                :: n > 2 -> held[2] = slot[t + 2]
                :: else
                fi
            }
            atomic {
                if
                :: top == t && tag == g ->
                    top = t + n;
                    take(held[0]);
                    if
                    :: n > 1 -> take(held[1])
                    :: else
                    fi;
                    if
                    :: n > 2 -> take(held[2])
                    :: else
                    fi
                :: else
                fi
            }
        fi;
        d_step { t = 0; g = 0; b = 0; n = 0; held[0] = 0; held[1] = 0; held[2] = 0 }
    :: else -> break
    od
}

proctype owner()
{
    byte i, t, g, before;
    bool got, last;

    do
    :: pushed < ITEMS && !last ->
        pushed++;
        slot[bottom] = pushed;
        bottom++
    :: true ->
        /* pop */
        got = false;
        before = bottom;
        d_step { t = top; g = tag }
        if
        :: before <= t ->
            if
            :: last -> break
            :: !last && pushed == ITEMS -> last = true
            :: !last && pushed < ITEMS
            fi
        :: else ->
            i = before - 1;
#ifdef MUTANT_LOWER_LATE
            d_step { t = top; g = tag }
            if
            :: i >= t + NEAR -> bottom = i; got = true
            :: else -> bottom = i
            fi;
#else
            bottom = i;
            d_step { t = top; g = tag }
#endif
            do
            :: got -> break
            :: !got && i < t -> break
            :: !got && i >= t && i >= t + NEAR -> got = true
            :: !got && i >= t && i < t + NEAR ->
                atomic {
                    if
                    :: top == t && tag == g ->
                        got = true;
#ifdef MUTANT_NO_TAG
                        if
                        :: i == t -> top = t + 1; bottom = i + 1 /* as the plain deque's last item */
                        :: else
                        fi
#else
                        tag++
#endif
                    :: else -> t = top; g = tag
                    fi
                }
            od;
            if
            :: got -> take(slot[i])
            :: else -> bottom = before
            fi;
            d_step { i = 0; before = 0; got = false; t = 0; g = 0 }
        fi
    :: pushed == ITEMS -> last = true
    od
}

init
{
    byte i;
    atomic {
        run owner();
        run thief();
        run thief()
    }
    _nr_pr == 1;
    assert(pushed == ITEMS);
    i = 1;
    do
    :: i <= ITEMS -> assert(taken[i] == 1); i++
    :: else -> break
    od
}
