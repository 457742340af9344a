/* slab.pml - runtime/memory/slab.[ch]: does a late reader ever take another use for its own, and is
 * memory that somebody uses ever decommitted?
 * One block of N entries. Users take an entry, from their own list or under the lock, use it with the
 * next generation, let its slot and generation be known, end the use and put the entry to their list
 * or back into the block. One thread ages: it decommits the block while all entries are free, and the
 * entries are zeros then, one at a time. A late reader knows one use, however old, and looks it up
 * without a lock, as a response, a timer or a message to an activation does; another one asks for a
 * slot that may not have been made. The mark is a call's deadline: each use lowers it, and it is "never"
 * after the block was decommitted. One step per atomic operation, and per plain access that others may
 * meet.
 * made, owner, uses and last are ghosts. */

#define N 2
#define ALL 3
#define USES 2
#define DECOMMITS 2

mtype = { UNMADE, IN_BLOCK, LISTED, USED };
mtype = { NO_BLOCK, IN_USE, PARTLY_FREE, FREE, DECOMMITTED };

byte word[N];  /* generation * 2 + 1 while it is in use */
byte used;     /* entries made: what readers look at first */
byte mark;     /* 1: at or before the deadline of a use; 0: never */

/* guarded by the lock */
bool locked;
mtype state = NO_BLOCK;
byte free, begun, passed;

/* ghosts */
bool made[N]; /* its memory is there */
mtype owner[N] = UNMADE;
byte uses[N]; /* which use it is, or was last */
byte last[N]; /* generation of the newest use of the slot */

/* the use that a late reader knows: any one */
byte known_slot, known_generation, known_use;

inline lock()
{
    atomic { !locked -> locked = true }
}

inline unlock()
{
    locked = false
}

inline set_owner(e, from, to)
{
    assert(owner[e] == from);
    owner[e] = to
}

/* After entries were taken from or returned to free. */
inline update_state()
{
#ifdef MUTANT_PARTLY_FREE_GOES
    state = (free == 0 -> IN_USE : FREE)
#else
    state = (free == 0 -> IN_USE : (free == ALL -> FREE : PARTLY_FREE))
#endif
}

/* Each entry of a block that is zeros continues from begun. */
inline init_and_link_entries(from)
{
    i = 0;
    do
    :: i < N ->
        set_owner(i, from, LISTED);
        made[i] = true;
        word[i] = begun * 2;
        i++
    :: else -> break
    od;
    own = ALL;
    i = 0
}

inline take_entries_from_block()
{
    d_step {
        i = 0;
        do
        :: i < N && (free >> i) % 2 == 1 -> set_owner(i, IN_BLOCK, LISTED); i++
        :: i < N && (free >> i) % 2 == 0 -> i++
        :: else -> break
        od;
        own = free;
        free = 0;
        i = 0;
        update_state()
    }
}

inline add_block()
{
    state = IN_USE;
#ifdef MUTANT_USED_EARLY
    used = N;
    init_and_link_entries(UNMADE)
#else
    init_and_link_entries(UNMADE);
    used = N
#endif
}

inline take_decommitted_block()
{
#ifndef MUTANT_BEGUN_STAYS
    begun = begun + passed;
#endif
    passed = 0;
    free = 0;
#ifdef MUTANT_STATE_LATE
    unlock();
    init_and_link_entries(IN_BLOCK);
    lock();
    state = IN_USE
#else
    state = IN_USE;
    init_and_link_entries(IN_BLOCK)
#endif
}

/* Fills own, if it is empty; it may stay so. */
inline refill()
{
    if
    :: own -> skip
    :: else ->
        lock();
        if
        :: state == PARTLY_FREE || state == FREE -> take_entries_from_block()
        :: state == DECOMMITTED -> take_decommitted_block()
        :: state == NO_BLOCK -> add_block()
        :: else /* another thread has them */
        fi;
        unlock()
    fi
}

inline count_passed(generation)
{
#ifdef MUTANT_PASSED_OF_LAST
    passed = generation - begun
#else
    passed = (generation - begun > passed -> generation - begun : passed)
#endif
}

/* Gives all of own back. An entry is read before it is given. */
inline flush()
{
    e = 0;
    do
    :: e < N && (own >> e) % 2 == 1 ->
#ifndef MUTANT_READ_LATE
        generation = word[e] / 2;
#endif
        lock();
        d_step {
            set_owner(e, LISTED, IN_BLOCK);
            free = free | (1 << e);
#ifndef MUTANT_READ_LATE
            count_passed(generation);
#endif
            update_state()
        };
        unlock();
#ifdef MUTANT_READ_LATE
        generation = word[e] / 2;
        lock();
        if
        :: generation > begun -> count_passed(generation)
        :: else
        fi;
        unlock();
#endif
        e++
    :: e < N && (own >> e) % 2 == 0 -> e++
    :: else -> break
    od;
    own = 0;
    e = 0;
    generation = 0
}

byte n_uses;

inline use()
{
    d_step {
        e = (own % 2 == 1 -> 0 : 1);
        own = own & (ALL - (1 << e));
        set_owner(e, LISTED, USED)
    };
    generation = word[e] / 2 + 1;
    d_step {
        assert(generation > last[e]); /* no {slot, generation} is used twice */
        last[e] = generation;
        n_uses++;
        uses[e] = n_uses;
        word[e] = generation * 2 + 1
    };
    mark = 1;
    if
    :: d_step {
           !known_use ->
           known_slot = e;
           known_generation = generation;
           known_use = uses[e]
       }
    :: skip
    fi;
    assert(mark == 1); /* its deadline is looked at */
    assert(word[e] == generation * 2 + 1);
    word[e] = generation * 2;
    d_step {
        set_owner(e, USED, LISTED);
        own = own | (1 << e);
        e = 0;
        generation = 0
    }
}

active [2] proctype user()
{
    byte own, i, e, generation, n;
    do
    :: n < USES ->
        n++;
        refill();
        if
        :: own -> use()
        :: else
        fi;
        if
        :: own -> flush()
        :: skip /* they stay on its list */
        fi
    :: else -> break
    od
}

inline zero(e)
{
    d_step {
        assert(owner[e] == IN_BLOCK);
        word[e] = 0
    }
}

active proctype ager()
{
    byte n;
    bool mine;
    do
    :: n < DECOMMITS ->
        n++;
        mine = false;
        lock();
        if
        :: state == FREE ->
            mine = true;
#ifndef MUTANT_FREE_MEANWHILE
            state = IN_USE /* no thread takes its entries */
#endif
        :: else
        fi;
        unlock();
        if
        :: mine ->
#ifndef MUTANT_MARK_LATE
            mark = 0;
#endif
            zero(0);
            zero(1);
            lock();
            state = DECOMMITTED;
            unlock();
#ifdef MUTANT_MARK_LATE
            mark = 0;
#endif
        :: else
        fi
    :: else -> break
    od
}

inline look_up(slot, generation, one)
{
    if
    :: slot < used ->
        d_step {
            assert(made[slot]);
            if
#ifdef MUTANT_ANY_GENERATION
            :: word[slot] % 2 == 1 ->
#else
            :: word[slot] == generation * 2 + 1 ->
#endif
                assert(owner[slot] == USED); /* what is free is not pending */
                assert(!one || uses[slot] == one)
            :: else
            fi
        }
    :: else -> assert(!one) /* what was used was made */
    fi
}

/* Its exchange succeeds only if the word is as its use left it. */
active proctype late_reader()
{
end: known_use -> /* if there is one */
    look_up(known_slot, known_generation, known_use)
}

/* With a number that a peer made up. */
active proctype guessing_reader()
{
    look_up(N - 1, 1, 0)
}
