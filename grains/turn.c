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

static inline void turn_init(teffi_turn *turn, teffi_activation *act, teffi_fiber *fiber,
                             const char *name)
{
    does(act, name);
    turn->name = name;
    teffi_ctx_init(&turn->ctx, act->grains->node, &act->group);
    turn->ctx.fiber = fiber;
    turn->ctx.owner = turn;
    turn->act = act;
    turn->request = NULL;
    turn->place = NULL;
    turn->on_stack = false;
    turn->next = act->turns;
    turn->prev = &act->turns;
    if (turn->next)
        turn->next->prev = &turn->next;
    act->turns = turn;
}

static inline void turn_fini(teffi_turn *turn)
{
    *turn->prev = turn->next;
    if (turn->next)
        turn->next->prev = turn->prev;
    teffi_ctx_end(&turn->ctx);
    if (turn->on_stack && turn->request)
        teffi_arena_drop(&turn->request->arena);
    else
        teffi_msg_free(turn->request);
}

void teffi_turns_discard(teffi_activation *act)
{
    while (act->turns)
        turn_fini(act->turns);
}

/* ---- answers ---- */

/* The request becomes its own answer, but one that is large, or lies on this stack, and whose
 * answer is to stay. */
static teffi_msg *response_of(teffi_turn *turn, bool stays, teffi_node_id *to)
{
    const teffi_node *node = turn->ctx.node;
    teffi_msg *request = turn->request;
    if (turn->on_stack || (stays && request->arena.chunks)) {
        *to = node->id;
        return teffi_node_response(node, request);
    }
    turn->request = NULL;
    *to = teffi_node_response_in(node, request);
    return request;
}

/* To a caller of this silo the answer is copied, since out may point into the grain's state, and
 * stays; towards another silo it is written or copied before respond returns. */
__attribute__((noinline)) static void answer(teffi_turn *turn, const teff_method *method,
                                             teff_err err, ProtobufCMessage *out)
{
    teff_ctx *ctx = &turn->ctx;
    if (turn->request->item.kind != TEFFI_MSG_REQUEST)
        return;
    bool stays = teffi_node_is(turn->request->src, ctx->node->id);
    teffi_node_id to;
    teffi_msg *response = response_of(turn, stays, &to);
    if (!response)
        return; /* the caller's deadline tells it */
    if (!err && out) {
        response->body = stays ? method->out->copy(&response->arena, out) : out;
        response->borrows = !stays;
        err = response->body ? TEFF_OK : TEFF_E_NOMEM;
    }
    response->err = (uint16_t)err;
    if (err && ctx->text)
        response->text =
            stays ? teff_arena_copy(&response->arena, ctx->text, strlen(ctx->text)) : ctx->text;
    teffi_node_respond_to(ctx->node, to, response);
}

static bool too_large(const teff_type_info *info, const ProtobufCMessage *body)
{
    return info->max_message_bytes && body &&
           protobuf_c_message_get_packed_size(body) > info->max_message_bytes;
}

/* The caller waits on this thread, below this stack. */
static inline void hand_over(teffi_turn *turn, const teff_method *method, teff_err err,
                             const ProtobufCMessage *out)
{
    teffi_in_place *place = turn->place;
    if (!err && out && place->out) {
        *place->out = method->out->copy(&place->caller->arena, out);
        err = *place->out ? TEFF_OK : TEFF_E_NOMEM;
    }
    place->err = (teff_err)(uint16_t)err; /* as in a message */
    if (err)
        (void)teffi_ctx_fail(place->caller, err, "%s", teff_error(&turn->ctx));
}

static inline __attribute__((always_inline)) void end(teffi_turn *turn, const teff_method *method,
                                                      teff_err err, ProtobufCMessage *out)
{
    const teff_type_info *info = turn->act->type->info;
    if (!err && too_large(info, out))
        err = teffi_ctx_fail(&turn->ctx, TEFF_E_TOO_LARGE, "%s: the answer is over %u bytes",
                             method->name, info->max_message_bytes);
    if (turn->place)
        hand_over(turn, method, err, out);
    else
        answer(turn, method, err, out);
}

/* ---- requests ---- */

static ProtobufCMessage *new_out(teffi_msg *request, const teff_method *method)
{
    if (!method->out)
        return NULL;
    ProtobufCMessage *out = teffi_arena_take(&request->arena, method->out->desc->sizeof_message);
    if (out)
        method->out->desc->message_init(out);
    return out;
}

/* On the turn's fiber, whose main function it is the rest of. */
static inline __attribute__((always_inline)) void run(teffi_turn *turn, const teff_method *method,
                                                      teffi_class class)
{
    teffi_activation *act = turn->act;
    teffi_msg *request = turn->request;
    act->running++;
    act->running_of[class]++;
    ProtobufCMessage *out = new_out(request, method);
    teff_err err = TEFF_E_NOMEM;
    if (out || !method->out) {
        teff_grain grain __attribute__((uninitialized));
        teffi_turn_grain(&grain, &turn->ctx, act);
        err = method->invoke(&grain, act->type->methods, request->body, out);
    }
    end(turn, method, err, out);
    turn_fini(turn);
    act->running--;
    act->running_of[class]--;
}

typedef struct start { /* on the starter's stack, gone at the first suspend */
    teffi_activation *act;
    teffi_msg *request;
    const teff_method *method;
    teffi_fiber *fiber;
} start;

static void request_main(void *arg)
{
    const start *s = arg;
    const teff_method *method = s->method;
    teffi_turn turn __attribute__((uninitialized));
    turn_init(&turn, s->act, s->fiber, method->name);
    turn.request = s->request;
    run(&turn, method, teffi_class_of(s->act->type->info, method));
}

static teff_err prepare(start *s)
{
    teff_err err = s->method->in ? teffi_msg_unpack(s->request, s->method->in->desc) : TEFF_OK;
    if (err)
        return err;
    s->fiber = teffi_fiber_new(s->act->grains->node->exec->fibers, request_main, s);
    return s->fiber ? TEFF_OK : TEFF_E_OVERLOADED;
}

void teffi_turn_start(teffi_activation *act, teffi_msg *request, const teff_method *method)
{
    start s = {.act = act, .request = request, .method = method};
    teff_err err = prepare(&s);
    if (err) {
        teffi_node_answer(act->grains->node, request, err, "the request cannot be started here");
        return;
    }
    teffi_fiber_label(s.fiber, method->name);
    (void)teffi_fiber_resume(s.fiber);
}

/* ---- in place ---- */

typedef struct place_frame { /* on the method's stack */
    teffi_turn turn;
    teffi_msg request;
    _Alignas(16) uint8_t bytes[TEFFI_MSG_INLINE];
} place_frame;

/* The request is copied: its caller may be gone before the method has read it all. */
static void place_main(void *arg)
{
    teffi_in_place *place = arg;
    const teff_method *method = place->method;
    place_frame f __attribute__((uninitialized));
    teffi_msg_init(&f.request, place->kind, f.bytes);
    if (method->in && !(f.request.body = method->in->copy(&f.request.arena, place->in))) {
        teffi_arena_drop(&f.request.arena);
        return;
    }
    turn_init(&f.turn, place->act, place->fiber, method->name);
    f.request.src = f.turn.ctx.node->id;
    f.turn.request = &f.request;
    f.turn.on_stack = true;
    f.turn.place = place;
    place->turn = &f.turn;
    run(&f.turn, method, place->class);
}

teffi_turn_end teffi_turn_in_place(teffi_in_place *place)
{
    teffi_exec *exec = place->act->grains->node->exec;
    place->turn = NULL;
    place->fiber = teffi_fiber_new(exec->fibers, place_main, place);
    if (!place->fiber)
        return TEFFI_TURN_NOT_STARTED;
    teffi_fiber_label(place->fiber, place->method->name);
    teffi_activation_used(place->act);
    teffi_group *outer = teffi_direct_enter(exec, &place->act->group);
    bool ended = teffi_fiber_resume(place->fiber);
    teffi_direct_leave(exec, outer);
    if (!ended)
        return TEFFI_TURN_WAITS;
    return place->turn ? TEFFI_TURN_ENDED : TEFFI_TURN_NOT_STARTED;
}

teffi_msg *teffi_turn_detach(teffi_in_place *place)
{
    place->turn->place = NULL;
    return place->turn->request;
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
    teffi_turn turn __attribute__((uninitialized));
    turn_init(&turn, l.act, l.fiber, l.label);
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
