/* game.c - a game loop on an engine: 60 times a second 10,000 balls move, are drawn, and the
 * referee reports to a grain. game [--ticks N] [--balls N], and the options of a silo. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "game.teff.h"

enum { SECOND_NS = 1000000000, RATE = 60, PERIOD_NS = SECOND_NS / RATE };
enum { WIDTH = 76, HEIGHT = 20, CELL = 256, SPEED_MAX = 64 }; /* positions in 1/256 of a cell */
enum { PARTS = 2 };                                           /* of a tick: drawn, reported */

typedef struct game {
    uint32_t ticks, balls; /* --ticks, --balls */
    teff_engine *engine;
    teff_ctx *ctx;
    pthread_t clock;
    atomic_bool ends;
    uint32_t begun, missed; /* the clock's */
    uint64_t began_ns, tick_began_ns;
    atomic_uint done, parts_over;
    _Atomic uint64_t sum_ns, max_ns; /* of ticks; written before done, by the last part of each */
} game;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* ---- the data: balls in a box, owned by the mover ---- */

typedef struct ball {
    int32_t x, y, dx, dy;
} ball;

typedef struct box {
    ball *balls;
    uint32_t n;
} box;

static int32_t draw_below(uint32_t *seed, uint32_t limit)
{
    *seed = *seed * 1664525 + 1013904223;
    return (int32_t)((*seed >> 8) % limit);
}

/* All balls begin in the middle. */
static void fill_box(teff_component *w, void *data)
{
    const game *g = teff_component_user(w);
    box *b = data;
    uint32_t seed = 1;
    b->balls = calloc(g->balls, sizeof *b->balls);
    b->n = b->balls ? g->balls : 0;
    for (uint32_t i = 0; i < b->n; i++)
        b->balls[i] = (ball){WIDTH * CELL / 2, HEIGHT * CELL / 2,
                             draw_below(&seed, 2 * SPEED_MAX) - SPEED_MAX,
                             draw_below(&seed, SPEED_MAX) - SPEED_MAX / 2};
}

static void empty_box(teff_component *w, void *data)
{
    (void)w;
    free(((box *)data)->balls);
}

static const teff_data_type box_type = {
    .name = "box", .size = sizeof(box), .init = fill_box, .fini = empty_box};

/* ---- the tasks of a tick: move, then draw and report; each goes to who lists it ---- */

typedef struct tick {
    game *game;
    uint32_t number, bounces;
} tick;

/* The tick is done with the last of its parts. */
static void end_part(void *task, int ran)
{
    const tick *t = task;
    game *g = t->game;
    (void)ran;
    if (atomic_fetch_add(&g->parts_over, 1) + 1 < t->number * PARTS)
        return;
    uint64_t took_ns = now_ns() - g->tick_began_ns;
    g->sum_ns += took_ns;
    g->max_ns = took_ns > g->max_ns ? took_ns : g->max_ns;
    atomic_store(&g->done, t->number);
}

static void broadcast(const teff_task_type *type, const tick *t)
{
    if (teff_engine_broadcast(t->game->engine, type, t))
        fprintf(stderr, "%s: not broadcast\n", type->name);
}

static void draw_box(teff_component *w, void *task, void *const *data);
static void report_bounces(teff_component *w, void *task, void *const *data);

static const teff_task_type draw = {.name = "draw",
                                    .size = sizeof(tick),
                                    .run = draw_box,
                                    .over = end_part,
                                    .n_needs = 1,
                                    .needs = {{&box_type, TEFF_READ}}};
static const teff_task_type report = {
    .name = "report", .size = sizeof(tick), .run = report_bounces, .over = end_part};

/* out: whether it has bounced. */
static uint32_t move_along(int32_t *at, int32_t *by, int32_t end)
{
    *at += *by;
    if (*at >= 0 && *at < end)
        return 0;
    *at = *at < 0 ? -*at : 2 * end - 1 - *at;
    *by = -*by;
    return 1;
}

static void move_balls(teff_component *w, void *task, void *const *data)
{
    box *b = data[0];
    tick *t = task;
    (void)w;
    for (uint32_t i = 0; i < b->n; i++) {
        ball *one = &b->balls[i];
        t->bounces += move_along(&one->x, &one->dx, WIDTH * CELL);
        t->bounces += move_along(&one->y, &one->dy, HEIGHT * CELL);
    }
    broadcast(&draw, t);
    broadcast(&report, t);
}

static const teff_task_type move = {.name = "move",
                                    .size = sizeof(tick),
                                    .run = move_balls,
                                    .n_needs = 1,
                                    .needs = {{&box_type, TEFF_WRITE}}};

static void print_figures(const game *g, uint32_t ticks, const char *end)
{
    double seconds = (double)(now_ns() - g->began_ns) / SECOND_NS;
    printf("%u ticks, %.1f a second, %.2f ms each, at most %.2f ms, %u missed%s", ticks,
           ticks / seconds, ticks ? (double)g->sum_ns / ticks / 1e6 : 0.0, (double)g->max_ns / 1e6,
           g->missed, end);
}

static void draw_picture(const box *b)
{
    static const char shades[] = " .:-=+*#%@";
    uint32_t count[HEIGHT][WIDTH] = {{0}};
    for (uint32_t i = 0; i < b->n; i++)
        count[b->balls[i].y / CELL][b->balls[i].x / CELL]++;
    printf("\033[H"); /* to the upper left corner */
    for (int y = 0; y < HEIGHT; y++, puts("\033[K"))
        for (int x = 0; x < WIDTH; x++)
            putchar(shades[count[y][x] < sizeof shades - 1 ? count[y][x] : sizeof shades - 2]);
}

/* In a terminal every other tick, else a line a second. */
static void draw_box(teff_component *w, void *task, void *const *data)
{
    const tick *t = task;
    (void)w;
    if (isatty(STDOUT_FILENO) ? t->number % 2 : t->number % RATE)
        return;
    if (isatty(STDOUT_FILENO))
        draw_picture(data[0]);
    print_figures(t->game, t->number - 1, "\n");
    fflush(stdout);
}

/* Has a stack: the call suspends this component, and its thread runs others. */
static void report_bounces(teff_component *w, void *task, void *const *data)
{
    teff_ctx *ctx = teff_component_ctx(w);
    const tick *t = task;
    (void)data;
    if (game_score_add(ctx, "this game", game_bounces(.count = t->bounces), NULL))
        fprintf(stderr, "%s\n", teff_error(ctx));
    teff_ctx_reset(ctx);
}

/* ---- the components ---- */

static const teff_data_use owns_box[] = {{&box_type, TEFF_DATA_OWNER}};
static const teff_data_use shares_box[] = {{&box_type, TEFF_DATA_SHARE}};
static const teff_task_type *const moves[] = {&move}, *const draws[] = {&draw},
                                   *const reports[] = {&report};
static const teff_component_type mover = {
    .name = "mover", .data = owns_box, .n_data = 1, .tasks = moves, .n_tasks = 1};
static const teff_component_type screen = {
    .name = "screen", .data = shares_box, .n_data = 1, .tasks = draws, .n_tasks = 1};
static const teff_component_type referee = {
    .name = "referee", .flags = TEFF_COMPONENT_FIBER, .tasks = reports, .n_tasks = 1};

/* ---- the grain ---- */

static teff_err add(game_score *self, const game_bounces *in, game_bounces *out)
{
    self->state->count += in->count;
    out->count = self->state->count;
    return TEFF_OK;
}

/* ---- the clock: a thread that broadcasts a tick when it is due and the last one is done ---- */

static void sleep_until(uint64_t ns)
{
    const struct timespec t = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
        ;
}

static void begin_tick(game *g)
{
    g->tick_began_ns = now_ns();
    broadcast(&move, &(tick){g, ++g->begun, 0});
}

static void print_result(game *g)
{
    game_bounces *score;
    print_figures(g, g->done, "\n");
    if (game_score_add(g->ctx, "this game", game_bounces(.count = 0), &score))
        fprintf(stderr, "%s\n", teff_error(g->ctx));
    else
        printf("%u balls bounced %ld times in %u ticks\n", g->balls, score->count, g->done);
}

static void *run_clock(void *arg)
{
    game *g = arg;
    uint64_t due_ns = g->began_ns = now_ns();
    while (!g->ends && g->done < g->ticks) {
        if (g->done < g->begun)
            g->missed++;
        else
            begin_tick(g);
        sleep_until(due_ns += PERIOD_NS);
    }
    print_result(g);
    kill(getpid(), SIGTERM);
    return NULL;
}

/* ---- the program ---- */

static teff_err store_number(uint32_t *to, const char *value, uint32_t max, char *text)
{
    char *end;
    unsigned long n = strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || n < 1 || n > max) {
        snprintf(text, TEFF_TEXT_MAX, "'%.50s'; expected a number of 1 to %u", value, max);
        return TEFF_E_INVALID;
    }
    *to = (uint32_t)n;
    return TEFF_OK;
}

static teff_err take_ticks(void *arg, const char *value, char *text)
{
    return store_number(&((game *)arg)->ticks, value, 100000000, text);
}

static teff_err take_balls(void *arg, const char *value, char *text)
{
    return store_number(&((game *)arg)->balls, value, 1000000, text);
}

static teff_err start(void *arg, teff_silo *silo, char *text)
{
    const teff_engine_options options = {.size = sizeof options, .schedulers = 2};
    game *g = arg;
    (void)text;
    teff_err err = teff_silo_make_engine(silo, &options, &g->engine);
    if (!err)
        err = teff_engine_add(g->engine, 0, &mover, g, NULL);
    if (!err)
        err = teff_engine_add(g->engine, 1, &screen, g, NULL);
    if (!err)
        err = teff_engine_add(g->engine, 1, &referee, g, NULL);
    if (!err && isatty(STDOUT_FILENO))
        printf("\033[2J"); /* clear the screen */
    g->ctx = err ? NULL : teff_silo_new_ctx(silo);
    if (err || !g->ctx)
        return err ? err : TEFF_E_NOMEM;
    if (!pthread_create(&g->clock, NULL, run_clock, g))
        return TEFF_OK;
    teff_ctx_free(g->ctx);
    return TEFF_E_NOMEM;
}

static void stop(void *arg, teff_silo *silo)
{
    game *g = arg;
    (void)silo;
    g->ends = true;
    pthread_join(g->clock, NULL);
    teff_ctx_free(g->ctx);
}

int main(int argc, char **argv)
{
    static const game_score_methods methods = {.add = add};
    static const teff_silo_options silo = {.size = sizeof silo, .silent = 1};
    static const teff_silo_option options[] = {
        {"ticks", "N", "end after so many ticks (600)", take_ticks},
        {"balls", "N", "in the box (10000)", take_balls},
        {NULL, NULL, NULL, NULL},
    };
    static game g = {.ticks = 600, .balls = 10000};
    const teff_silo_program program = {.size = sizeof program,
                                       .options = options,
                                       .start = start,
                                       .stop = stop,
                                       .arg = &g,
                                       .silo = &silo};
    return teff_silo_run(argc, argv, &program, game_score_type(&methods, NULL), NULL);
}
