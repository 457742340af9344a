/* silo.c - a silo with gates, players and lobbies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "presence.teff.h"

enum { CHECK_MS = 500, NAME_MAX_BYTES = 60 };

typedef struct settings { /* what the types get as user */
    uint32_t away_ms;     /* a player without a beat for so long goes offline */
    uint32_t wake_ms;     /* the period of players' reminders */
} settings;

static const char wake[] = "wake"; /* a player's reminder */

/* ---- gates: stateless workers ---- */

/* Reads a line, and moves *at behind it. out: false: it is no beat. */
static bool read_beat(const char **at, const char *end, char name[NAME_MAX_BYTES + 1],
                      char place[NAME_MAX_BYTES + 1])
{
    char line[2 * NAME_MAX_BYTES + 2] = "";
    size_t left = (size_t)(end - *at), len = 0;
    while (len < left && (*at)[len] != '\n')
        len++;
    memcpy(line, *at, len < sizeof line - 1 ? len : sizeof line - 1);
    *at += len < left ? len + 1 : len;
    return sscanf(line, "%60s %60s", name, place) == 2;
}

static teff_err report(presence_gate *self, const presence_packet *in)
{
    const char *at = (const char *)in->data.data, *end = in->data.len ? at + in->data.len : at;
    char name[NAME_MAX_BYTES + 1], place[NAME_MAX_BYTES + 1];
    teff_err err = TEFF_OK;
    while (!err && at < end) {
        if (!read_beat(&at, end, name, place))
            continue;
        err = presence_player_seen(self->ctx, name,
                                   presence_beat(.lobby = self->key, .place = place));
        if (err == TEFF_E_INVALID || err == TEFF_E_MALFORMED) /* it is not UTF-8: no beat */
            err = TEFF_OK;
    }
    return err;
}

/* ---- players ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static teff_err start_timer(presence_player *self)
{
    static const teff_timer_options once = {.size = sizeof once, .due_ms = CHECK_MS};
    return presence_player_check_timer(self->ctx, &once, NULL);
}

static teff_err enter_lobby(presence_player *self)
{
    return presence_lobby_enter(self->ctx, self->state->lobby,
                                presence_name(.name = self->key, .place = self->state->place));
}

/* After an error, the memory may differ from the store, the lobby may not know the player, or no
 * timer may run. So the activation ends. The next beat or tick of the reminder starts from what the
 * store says. */
static teff_err end_if_failed(presence_player *self, teff_err err)
{
    if (err)
        teff_deactivate(self->ctx);
    return err;
}

/* The reminder comes first: if the silo is lost after any of these steps, it wakes the player. */
static teff_err go_online(presence_player *self, const presence_beat *in)
{
    const settings *set = self->user;
    const teff_reminder_options each = {
        .size = sizeof each, .due_ms = set->wake_ms, .period_ms = set->wake_ms};
    teff_err err = teff_reminder_register(self->ctx, wake, &each);
    if (err)
        return err;
    self->state->online = true;
    self->state->lobby = teff_state_strdup(self->ctx, in->lobby);
    self->state->place = teff_state_strdup(self->ctx, in->place);
    err = presence_player_save(self);
    if (!err)
        err = enter_lobby(self);
    return err ? err : start_timer(self);
}

static teff_err go_offline(presence_player *self)
{
    teff_err err =
        presence_lobby_leave(self->ctx, self->state->lobby, presence_name(.name = self->key));
    if (err)
        return err;
    self->state->online = false;
    err = presence_player_save(self);
    return err ? err : teff_reminder_unregister(self->ctx, wake);
}

/* The time of the beat is only kept in memory: it need not survive. */
static teff_err seen(presence_player *self, const presence_beat *in)
{
    self->state->seen_ms = now_ms();
    return self->state->online ? TEFF_OK : end_if_failed(self, go_online(self, in));
}

static teff_err check(presence_player *self)
{
    const settings *set = self->user;
    teff_err err = TEFF_OK;
    if (now_ms() - self->state->seen_ms > set->away_ms)
        err = go_offline(self);
    if (!err && self->state->online)
        err = start_timer(self);
    return end_if_failed(self, err);
}

/* A player that was online when its silo was lost: its timer is gone. */
static teff_err on_activate(presence_player *self)
{
    if (!self->state->online)
        return TEFF_OK;
    self->state->seen_ms = now_ms();
    teff_err err = enter_lobby(self);
    return err ? err : start_timer(self);
}

/* The tick has activated the player if needed, and on_activate has started its timer. */
static teff_err on_reminder(presence_player *self, const teff_tick *tick)
{
    return self->state->online ? TEFF_OK : teff_reminder_unregister(self->ctx, tick->name);
}

/* ---- lobbies ---- */

static size_t find_name(const presence_names *list, const char *name)
{
    size_t i = 0;
    while (i < list->n_names && strcmp(list->names[i]->name, name) != 0)
        i++;
    return i;
}

static teff_err enter(presence_lobby *self, const presence_name *in)
{
    if (find_name(self->state, in->name) == self->state->n_names)
        presence_names_append_names(self->ctx, self->state, in);
    return presence_lobby_save(self);
}

static teff_err leave(presence_lobby *self, const presence_name *in)
{
    presence_names *list = self->state;
    size_t i = find_name(list, in->name);
    if (i < list->n_names)
        list->names[i] = list->names[--list->n_names];
    return presence_lobby_save(self);
}

static teff_err list_names(presence_lobby *self, presence_names *out)
{
    out->n_names = self->state->n_names;
    out->names = self->state->names;
    return TEFF_OK;
}

/* ---- the program ---- */

static teff_err take_ms(uint32_t *ms, const char *value, char *text)
{
    *ms = (uint32_t)strtoul(value, NULL, 10);
    if (*ms)
        return TEFF_OK;
    snprintf(text, TEFF_TEXT_MAX, "milliseconds expected");
    return TEFF_E_INVALID;
}

static teff_err take_away(void *arg, const char *value, char *text)
{
    return take_ms(&((settings *)arg)->away_ms, value, text);
}

static teff_err take_wake(void *arg, const char *value, char *text)
{
    return take_ms(&((settings *)arg)->wake_ms, value, text);
}

int main(int argc, char **argv)
{
    static settings set = {.away_ms = 5000, .wake_ms = TEFF_REMINDER_PERIOD_MIN_MS};
    static const presence_gate_methods gate = {.report = report};
    static const presence_player_methods player = {
        .seen = seen, .check = check, .on_activate = on_activate, .on_reminder = on_reminder};
    static const presence_lobby_methods lobby = {
        .enter = enter, .leave = leave, .list = list_names};
    static const teff_silo_option options[] = {
        {"away-ms", "N", "a player without a beat for so long goes offline", take_away},
        {"wake-ms", "N", "the period of players' reminders", take_wake},
        {NULL, NULL, NULL, NULL}};
    const teff_silo_program program = {.size = sizeof program, .options = options, .arg = &set};
    return teff_silo_run(argc, argv, &program, presence_gate_type(&gate, NULL),
                         presence_player_type(&player, &set), presence_lobby_type(&lobby, NULL),
                         NULL);
}
