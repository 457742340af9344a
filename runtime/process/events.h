/* events.h - events on their way to a process: messages, commands that complete, timers that fire.
 * Way:     send, command, timer -> [event] -> the group -> [event: urgent | mail | flags] ->
 *          step, receive
 * Threads: an event belongs to its sender, then to the group, then to the process's turn. Functions
 *          run in the process's turn, except teff_command_complete (any thread). */
#pragma once

#include <sys/queue.h>
#include <teff/process.h>
#include "base/queue.h"
#include "group/exec.h"

/* item.kind */
enum {
    TEFFI_ITEM_AGAIN = 1,  /* teff_process.again: start, continue, yield, the rest of a step */
    TEFFI_ITEM_SIGNAL = 2, /* teff_process.signal */
    TEFFI_ITEM_MESSAGE = 3,
    TEFFI_ITEM_COMMAND = 4, /* a command that has completed */
    TEFFI_ITEM_TIMER = 5,
    TEFFI_ITEM_RETURNED = 6 /* a message back at its sender; not counted in a mailbox */
};

typedef struct teffi_event {
    _Alignas(16) teffi_item item;
    uint32_t generation; /* of the receiver, when the event was sent */
    teff_event event;    /* data: behind the struct, or a command's result */
} teffi_event;

typedef struct teffi_events { /* FIFO through item.next */
    teffi_event *head, *tail;
} teffi_events;

static inline teffi_event *teffi_event_of(teffi_item *item)
{
    return item ? teffi_container(item, teffi_event, item) : NULL;
}

static inline void teffi_events_push(teffi_events *list, teffi_event *event)
{
    event->item.next = NULL;
    if (list->tail)
        list->tail->item.next = &event->item;
    else
        list->head = event;
    list->tail = event;
}

/* teffi_events_pop - remove the first event. out: the event; NULL: the list is empty. */
static inline teffi_event *teffi_events_pop(teffi_events *list)
{
    teffi_event *event = list->head;
    if (!event)
        return NULL;
    list->head = (teffi_event *)(void *)event->item.next; /* an event begins with its item */
    if (!list->head)
        list->tail = NULL;
    return event;
}

/* teffi_process_dispatch_item - put an item of the group into the process's lists and flags. An
 * event of an earlier life, or one that comes after the process's end, is freed and counted as
 * dropped; a request gets TEFF_E_CLOSED. An item that is no event goes to system->calls. */
void teffi_process_dispatch_item(teff_process *p, teffi_item *item);

/* teffi_process_dispatch_items - call teffi_process_dispatch_item for all queued items of the
 * group. runs: inside the process's own functions. out: false: there were no items. */
bool teffi_process_dispatch_items(teff_process *p);

/* teffi_process_take_message - take the next message, from the list or the group. out: NULL: none;
 * the caller frees it with teffi_event_free. runs: inside the process's own functions. */
teffi_event *teffi_process_take_message(teff_process *p);

/* teffi_event_free - free an event that is in no list; a message does not count in the mailbox any
 * more. teffi_events_free - free all events of a list. Requests among them get no response. */
void teffi_event_free(teff_process *p, teffi_event *event);
void teffi_events_free(teff_process *p, teffi_events *list);

/* teffi_process_end_life - make the generation even; free the events in the process's lists, the
 * commands in flight and the timers. Requests get TEFF_E_CLOSED. Events that are queued at the
 * group, or come later, are freed by teffi_process_dispatch_item. */
void teffi_process_end_life(teff_process *p);

typedef struct teffi_command {
    teffi_event e;
    struct teffi_command *next; /* in teff_step, then in process.commands */
    uint64_t serial;
    uint32_t kind;
    size_t data_len;
    void *result; /* owned; e.event.data once completed; NULL: none */
    _Alignas(16) unsigned char data[];
} teffi_command;

/* teffi_command_new - make a command, counted in p->n_commands and not in flight yet.
 * errs: NULL with *err: TEFF_E_NOMEM, TEFF_E_OVERLOADED. */
teffi_command *teffi_command_new(teff_process *p, uint32_t kind, uint64_t tag, const void *data,
                                 size_t len, teff_err *err);

/* teffi_command_dispatch - give a command to its handler, which may complete it before this
 * returns. A command without a handler completes as TEFF_E_UNIMPLEMENTED. */
void teffi_command_dispatch(teff_process *p, teffi_command *command);

/* teffi_command_free - free a command and the data of its completion. Does not change
 * p->n_commands. */
void teffi_command_free(teffi_command *command);

typedef struct teffi_timer_event {
    teffi_event e;
    teffi_timer timer;
    teff_process *process;
    bool muted; /* cancelled after it began to fire: the process does not get its event */
    LIST_ENTRY(teffi_timer_event) link; /* process.timers */
} teffi_timer_event;

/* teffi_timer_event_set - start a timer. out: the timer, valid until its event is freed; NULL when
 * memory is out. */
teffi_timer_event *teffi_timer_event_set(teff_process *p, uint64_t delay_ns, uint64_t tag);

/* teffi_timer_event_cancel - cancel a timer: even if it is firing, the process does not get its
 * event. in: timer, whose event was not taken off the group yet. */
void teffi_timer_event_cancel(teff_process *p, teffi_timer_event *timer);

/* teffi_timer_events_cancel_all - cancel all timers of the process, at the end of its life. */
void teffi_timer_events_cancel_all(teff_process *p);
