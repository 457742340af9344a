/* index.pml - runtime/base/index.[ch]: does a reader without the lock ever believe wrongly that a
 * number is not there?
 * One writer adds and takes out the number that is searched (WANTED) and another of the same home,
 * and rebuilds, in two arrays by turns, as spares are used again; one reader searches. All homes are
 * one cell, the worst case; the search goes over the end. One step per atomic operation. That the
 * kernel takes the pages of an array that was left is a step a cell. */

#define N 4
#define EMPTY 0
#define TAKEN_OUT 1
#define OTHER 2
#define WANTED 3
#define STEPS 5
#define HOME 2

byte cell[8];    /* two arrays of N */
byte now;        /* which one: 0 or 1 */
byte moves;
bool wanted_in, other_in;
bool absent;     /* at some moment of the search WANTED was not in */
bool present;    /* or was */
byte filled;     /* of the array now */

inline put(n, value)
{
    cell[n] = value
}

/* To the first cell that holds nothing; the writer reads what it wrote itself: no step. */
inline add(value)
{
    d_step {
        at = HOME;
        do
        :: cell[now * N + at] >= OTHER -> at = (at + 1) % N
        :: else -> break
        od;
        if
        :: cell[now * N + at] == EMPTY -> filled++
        :: else
        fi;
        put(now * N + at, value);
        if
        :: value == WANTED -> wanted_in = true; present = true
        :: else -> other_in = true
        fi;
        at = 0
    }
}

inline find(value)
{
    at = HOME;
    do
    :: cell[now * N + at] != value -> at = (at + 1) % N
    :: else -> break
    od
}

inline del(value)
{
    d_step {
        find(value);
#ifdef MUTANT_DEL_EMPTIES
        put(now * N + at, EMPTY);
        filled--;
#else
        put(now * N + at, TAKEN_OUT);
#endif
        if
        :: value == WANTED -> wanted_in = false; absent = true
        :: else -> other_in = false
        fi
    }
    /* in front of an EMPTY cell what was taken out is EMPTY too */
    do
#ifdef MUTANT_CLEAR_ANY
    :: cell[now * N + at] == TAKEN_OUT ->
#else
    :: cell[now * N + at] == TAKEN_OUT && cell[now * N + (at + 1) % N] == EMPTY ->
#endif
        put(now * N + at, EMPTY);
        filled--;
        at = (at + N - 1) % N
    :: else -> break
    od;
    at = 0
}

inline fill_new()
{
    at = 0;
    to = HOME;
    do
    :: at < N && cell[now * N + at] >= OTHER ->
        put((1 - now) * N + to, cell[now * N + at]);
        to = (to + 1) % N;
        at++
    :: at < N && cell[now * N + at] < OTHER -> at++
    :: else -> break
    od
}

inline empty_old()
{
    at = 0;
    do
    :: at < N -> put(old * N + at, EMPTY); at++
    :: else -> break
    od
}

inline rebuild()
{
    old = now;
#ifdef MUTANT_PUBLISH_EMPTY
    now = 1 - old;
    at = 0;
    to = HOME;
    do
    :: at < N && cell[old * N + at] >= OTHER ->
        put(now * N + to, cell[old * N + at]);
        to = (to + 1) % N;
        at++
    :: at < N && cell[old * N + at] < OTHER -> at++
    :: else -> break
    od;
    moves = moves + 1;
    empty_old();
    moves = moves + 1;
#else
    fill_new();
#ifdef MUTANT_ODD_LATE
    now = 1 - old;
    empty_old();
    moves = moves + 2;
#else
    moves = moves + 1;
    now = 1 - old;
    empty_old();
    moves = moves + 1;
#endif
#endif
    filled = wanted_in + other_in;
    at = 0;
    to = 0
}

active proctype writer()
{
    byte at, to, old, step;
    do
    :: step < STEPS ->
        step++;
        if
        :: !wanted_in && filled < N - 1 -> add(WANTED)
        :: !other_in && filled < N - 1 -> add(OTHER)
        :: wanted_in -> del(WANTED)
        :: other_in -> del(OTHER)
        :: rebuild()
        fi
    :: else -> break
    od
}

active proctype reader()
{
    byte before, array, at, left, seen;
    bool hit;
    d_step {
        absent = !wanted_in;
        present = wanted_in;
        before = moves
    }
    array = now;
    at = HOME;
    left = N;
    do
    :: left > 0 && !hit ->
        left--;
        seen = cell[array * N + at];
        at = (at + 1) % N;
        if
        :: seen == EMPTY -> left = 0
        :: seen == WANTED -> hit = true
        :: else
        fi
    :: else -> break
    od;
    seen = 0;
    at = 0;
    if
    :: hit -> assert(present)
#ifdef MUTANT_NO_MOVES
    :: !hit -> assert(absent)
#else
#ifdef MUTANT_ODD_IGNORED
    :: !hit && moves == before -> assert(absent)
#else
    :: !hit && before % 2 == 0 && moves == before -> assert(absent)
#endif
    :: !hit && (before % 2 == 1 || moves != before) /* asks again under the lock */
#endif
    fi
}
