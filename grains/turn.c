/* turn.c - methods on fibers: started, answered, ended.
 * Way:     activation -> [turn] -> invoke -> user code -> answer
 * Threads: on the activation's group; a turn may go on in another thread after a suspend. */
#include "turn.h"

#include "base/bug.h"
#include "grains.h"
#include "sched/direct.h"

teffi_activation *teffi_turn_activation(const teff_ctx *ctx)
{
    const teffi_turn *turn = ctx->owner;
    return turn ? turn->act : NULL;
}

teff_grain teffi_turn_grain(teff_ctx *ctx, teffi_activation *act)
{
    return (teff_grain){ctx, teffi_activation_key(act), teffi_activation_state(act),
                        act->type->user};
}

static void does(teffi_activation *act, const char *name)
{
    atomic_store_explicit(&act->doing, name, memory_order_relaxed);
}

/* A wait whose context has ended belongs to no turn. */
void teffi_turn_resumes(teffi_activation *act, teffi_item *item)
{
    const teffi_wait *wait = teffi_container(item, teffi_wait, item);
    const teffi_turn *turn = wait->ctx ? wait->ctx->owner : NULL;
    if (turn)
        does(act, turn->name);
}

static void turn_init(teffi_turn *turn, teffi_activation *act, teffi_fiber *fiber,
                      teffi_msg *request, const char *name)
{
    does(act, name);
    turn->name = name;
    teffi_ctx_init(&turn->ctx, act->grains->node, &act->group);
    turn->ctx.fiber = fiber;
    turn->ctx.owner = turn;
    turn->act = act;
    turn->request = request;
    turn->next = act->turns;
    turn->prev = &act->turns;
    if (turn->next)
        turn->next->prev = &turn->next;
    act->turns = turn;
}

static void turn_fini(teffi_turn *turn)
{
    *turn->prev = turn->next;
    if (turn->next)
        turn->next->prev = turn->prev;
    teffi_ctx_fini(&turn->ctx);
    teffi_msg_free(turn->request);
}

void teffi_turns_discard(teffi_activation *act)
{
    while (act->turns)
        turn_fini(act->turns);
}

/* ---- requests ---- */

typedef struct teffi_start { /* on the starter's stack, then on the fiber's */
    teffi_activation *act;
    teffi_msg *request;
    const teff_method *method;
    teffi_fiber *fiber;
    teffi_class class;
    teffi_in_place *place; /* NULL: the answer is a message */
} start;

/* To a caller of this silo the answer is copied, since out may point into the grain's state;
 * towards another silo it is packed before respond returns. */
static teff_err put_answer(teffi_node *node, teffi_msg *response, const teffi_msg *request,
                           const teff_method *method, ProtobufCMessage *out)
{
    if (!method->out)
        return TEFF_OK;
    if (teffi_node_is(request->src, node->id))
        response->body = method->out->copy(&response->arena, out);
    else
        response->body = out;
    return response->body ? TEFF_OK : TEFF_E_NOMEM;
}

static bool too_large(const teff_type_info *info, const ProtobufCMessage *body)
{
    return info->max_message_bytes && body &&
           protobuf_c_message_get_packed_size(body) > info->max_message_bytes;
}

static void answer(teff_ctx *ctx, const start *s, teff_err err, ProtobufCMessage *out)
{
    teffi_node *node = ctx->node;
    if (s->request->item.kind != TEFFI_MSG_REQUEST)
        return;
    teffi_msg *response = teffi_node_response(node, s->request);
    if (!response)
        return; /* the caller's deadline tells it */
    if (!err)
        err = put_answer(node, response, s->request, s->method, out);
    response->err = (uint16_t)err;
    if (err && teff_error(ctx)[0])
        response->text =
            teff_arena_copy(&response->arena, teff_error(ctx), strlen(teff_error(ctx)));
    teffi_node_respond(node, s->request, response);
}

/* The caller waits on this thread, below this stack. */
static void hand_over(teff_ctx *ctx, const start *s, teff_err err, ProtobufCMessage *out)
{
    teffi_in_place *place = s->place;
    if (!err && out && place->out) {
        *place->out = s->method->out->copy(&place->caller->arena, out);
        err = *place->out ? TEFF_OK : TEFF_E_NOMEM;
    }
    place->err = (teff_err)(uint16_t)err; /* as in a message */
    if (err)
        (void)teffi_ctx_fail(place->caller, err, "%s", teff_error(ctx));
}

static void end(teff_ctx *ctx, const start *s, teff_err err, ProtobufCMessage *out)
{
    if (!err && too_large(s->act->type->info, out))
        err = teffi_ctx_fail(ctx, TEFF_E_TOO_LARGE, "%s: the answer is over %u bytes",
                             s->method->name, s->act->type->info->max_message_bytes);
    if (s->place)
        hand_over(ctx, s, err, out);
    else
        answer(ctx, s, err, out);
}

static ProtobufCMessage *new_out(teffi_msg *request, const teff_method *method)
{
    if (!method->out)
        return NULL;
    ProtobufCMessage *out = teffi_arena_take(&request->arena, method->out->desc->sizeof_message);
    if (out)
        protobuf_c_message_init(method->out->desc, out);
    return out;
}

static void request_main(void *arg)
{
    start s = *(start *)arg; /* arg is gone at the first suspend */
    teffi_activation *act = s.act;
    teffi_turn turn __attribute__((uninitialized));
    turn_init(&turn, act, s.fiber, s.request, s.method->name);
    if (s.place)
        s.place->start = &s;
    ProtobufCMessage *out = new_out(s.request, s.method);
    teff_err err = TEFF_E_NOMEM;
    if (out || !s.method->out) {
        teff_grain grain = teffi_turn_grain(&turn.ctx, act);
        err = s.method->invoke(&grain, act->type->methods, s.request->body, out);
    }
    end(&turn.ctx, &s, err, out);
    turn_fini(&turn);
    act->running--;
    act->running_of[s.class]--;
}

/* Its first steps are the caller's. */
static teff_err prepare(start *s)
{
    teff_err err = s->method->in ? teffi_msg_unpack(s->request, s->method->in->desc) : TEFF_OK;
    if (err)
        return err;
    s->class = teffi_class_of(s->act->type->info, s->method);
    s->fiber = teffi_fiber_new(s->act->grains->node->exec->fibers, request_main, s);
    if (!s->fiber)
        return TEFF_E_OVERLOADED;
    s->act->running++;
    s->act->running_of[s->class]++;
    teffi_fiber_label(s->fiber, s->method->name);
    return TEFF_OK;
}

void teffi_turn_start(teffi_activation *act, teffi_msg *request, const teff_method *method)
{
    start s = {.act = act, .request = request, .method = method};
    teff_err err = prepare(&s);
    if (err)
        teffi_node_answer(act->grains->node, request, err, "the request cannot be started here");
    else
        (void)teffi_fiber_resume(s.fiber);
}

teffi_turn_end teffi_turn_in_place(teffi_activation *act, teffi_msg *request,
                                   const teff_method *method, teffi_in_place *place)
{
    teffi_exec *exec = act->grains->node->exec;
    start s = {.act = act, .request = request, .method = method, .place = place};
    if (prepare(&s))
        return TEFFI_TURN_NOT_STARTED;
    teffi_activation_used(act);
    teffi_group *outer = teffi_direct_enter(exec, &act->group);
    bool ended = teffi_fiber_resume(s.fiber);
    teffi_direct_leave(exec, outer);
    return ended ? TEFFI_TURN_ENDED : TEFFI_TURN_WAITS;
}

void teffi_turn_detach(teffi_in_place *place)
{
    place->start->place = NULL;
}

/* ---- an activation's own life ---- */

typedef struct life {
    teffi_activation *act;
    void (*fn)(teff_ctx *ctx, teffi_activation *act);
    teffi_fiber *fiber;
    const char *label;
} life;

static void life_main(void *arg)
{
    life l = *(life *)arg; /* arg is on the starter's stack, gone at the first suspend */
    teffi_turn turn;
    turn_init(&turn, l.act, l.fiber, NULL, l.label);
    l.fn(&turn.ctx, l.act);
    turn_fini(&turn);
    l.act->busy = false;
}

teff_err teffi_turn_life(teffi_activation *act, void (*fn)(teff_ctx *ctx, teffi_activation *act),
                         const char *label)
{
    life l = {act, fn, NULL, label};
    l.fiber = teffi_fiber_new(act->grains->node->exec->fibers, life_main, &l);
    if (!l.fiber)
        return TEFF_E_NOMEM;
    act->busy = true;
    teffi_fiber_label(l.fiber, label);
    (void)teffi_fiber_resume(l.fiber);
    return TEFF_OK;
}
