/* crash_bank.h - the bank of crash_silo: tellers, accounts, and an auditor that compares them.
 * Way:     crash_silo.c -> [crash_bank] -> the bank's grains, on any silo
 * A teller's key and the number of a transfer decide which accounts the transfer changes, and by
 * which amounts. So the tellers' last numbers tell what each account must contain. */
#pragma once

#include "crash.teff.h"

enum { BANK_TELLERS = 8, BANK_ACCOUNTS = 8 };

teff_grain_type *bank_teller_type(void);
teff_grain_type *bank_account_type(void);
teff_grain_type *bank_auditor_type(void);

/* bank_audit - read all tellers and accounts in one transaction, and compare them.
 * in:   key: of the auditor's grain. text: TEFF_TEXT_MAX bytes.
 * out:  text: after an error, the reason; "damaged: ..." if an account does not contain exactly the
 *       transfers of the tellers. *books lives until the next teff_ctx_reset.
 * errs: TEFF_E_FAILED: damaged; those of calls. */
TEFF_MUST_USE teff_err bank_audit(teff_ctx *ctx, const char *key, crash_books **books, char *text);
