/* ticker.c - the link's own thread: sleeps between calls of look() and look_soon(). */
#include "link/conn/ticker.h"

static bool is_asked_soon(link_ticker *ticker)
{
    return atomic_load_explicit(&ticker->asked_soon, memory_order_relaxed);
}

static void run_look_soon(link_ticker *ticker)
{
    /* seq_cst: work added before this store is found by look_soon() below; a thread that adds work
     * after it loads false, and requests again */
    atomic_store_explicit(&ticker->asked_soon, false, memory_order_seq_cst);
    if (ticker->look_soon(ticker->arg))
        atomic_store_explicit(&ticker->asked_soon, true, memory_order_seq_cst);
}

/* Sleep until look is requested, at most ns. Meanwhile run requested look_soon calls. */
static void sleep_until_asked(link_ticker *ticker, uint64_t ns)
{
    uint64_t began_ns = teffi_now(ticker->platform), passed_ns = 0;
    for (bool goes_on = true; goes_on;) {
        bool soon = is_asked_soon(ticker);
        teffi_parker_wait(&ticker->parker, soon ? LINK_SOON_NS : ns - passed_ns);
        if (soon)
            run_look_soon(ticker);
        passed_ns = teffi_now(ticker->platform) - began_ns;
        /* acquire: pairs with teffi_link_ticker_ask() */
        goes_on = !atomic_exchange_explicit(&ticker->asked, false, memory_order_acquire) &&
                  (soon || is_asked_soon(ticker)) && passed_ns < ns;
    }
}

static void run_ticker(void *arg)
{
    link_ticker *ticker = arg;
    for (uint64_t ns; (ns = ticker->look(ticker->arg));)
        sleep_until_asked(ticker, ns);
}

teff_err teffi_link_ticker_start(link_ticker *ticker)
{
    teff_err err = teffi_thread_start(&ticker->thread, "teff-link", run_ticker, ticker);
    ticker->started = err == TEFF_OK;
    return err;
}

void teffi_link_ticker_ask(link_ticker *ticker)
{
    /* release: pairs with sleep_until_asked */
    atomic_store_explicit(&ticker->asked, true, memory_order_release);
    teffi_parker_wake(&ticker->parker);
}

void teffi_link_ticker_ask_soon(link_ticker *ticker)
{
    if (atomic_load_explicit(&ticker->asked_soon, memory_order_seq_cst))
        return;
    atomic_store_explicit(&ticker->asked_soon, true, memory_order_seq_cst);
    teffi_parker_wake(&ticker->parker);
}

void teffi_link_ticker_stop(link_ticker *ticker)
{
    teffi_link_ticker_ask(ticker);
    if (ticker->started)
        teffi_thread_join(&ticker->thread);
    ticker->started = false;
}
