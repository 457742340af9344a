/* cancel.pml - runtime/call/relay.c, teffi_call_sign_and_check_cancel and teffi_cancel_call: does a cancel meet its
 * request, wherever the request is? One use of one entry. A router signs the request and gives it
 * to a node, which may refuse it; then to the next one. Beside it a caller who cancels, and a
 * deadline. One step per atomic operation; the table of origins has a lock, the net has one. */

#define NOBODY 0
#define NODES 2 /* the last one does not refuse */

bool pending = true, sent; /* the word */
byte sent_to = NOBODY;
bool kept;

byte request_at = NOBODY; /* the node that has accepted it */
byte cancel_at[3];        /* the nodes that the cancel was sent to */
bool dropped, cancelled;

proctype router()
{
    byte to = 1;
    bool was;
    do
    :: to > NODES -> break
    :: else ->
        was = pending;
        if
        :: was ->
#ifndef MUTANT_NODE_NOTED_LATE
            sent_to = to;
#endif
#ifndef MUTANT_NO_SECOND_LOOK
            was = pending
#endif
        :: else
        fi;
        if
        :: !was && kept ->
            kept = false;
            dropped = true;
            break
        :: else
        fi;
        if
        :: to < NODES -> to++ /* refused: surely not sent */
        :: d_step {
                request_at = to;
                if
                :: pending -> sent = true
                :: else
                fi
            }
#ifdef MUTANT_NODE_NOTED_LATE
            sent_to = to;
#endif
            break
        fi
    od
}

proctype canceller()
{
    bool was, was_sent, keeps;
    byte to;
    d_step {
        was = pending;
        was_sent = sent
    }
    if
    :: was ->
#ifndef MUTANT_KEPT_LATE
        if
        :: !was_sent ->
            keeps = true;
            kept = true
        :: else
        fi;
#endif
        d_step {
            was = pending;
            pending = false
        }
        if
        :: was ->
#ifdef MUTANT_KEPT_LATE
            kept = !was_sent;
#endif
            to = sent_to;
            cancel_at[to] = 1;
            cancelled = true
        :: !was && keeps -> kept = false
        :: else
        fi
    :: else
    fi
}

proctype deadline()
{
    pending = false
}

init
{
    atomic {
        run router();
        run canceller();
        if
        :: run deadline()
        :: skip
        fi
    }
    _nr_pr == 1;
    assert(!(cancelled && request_at) || cancel_at[request_at]);
    assert(!dropped || !pending); /* its call has ended: by the cancel, or just before it */
    assert(dropped || request_at)
}
