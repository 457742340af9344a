/* etcd_server.h - an etcd cluster of a test's own: on free ports, with its files in the scratch
 * directory.
 * Way:     test_etcd_conformance, test_etcd -> [etcd_server] -> etcd
 * Threads: the test's main one. The members end with the thread that started them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { ETCD_MEMBERS_MAX = 3 };

/* etcd_server_start - start a new cluster of n members, without rows, if possible on the ports of
 * the last one; wait until all serve.
 * out: false: the program is not installed. Ends the test if it does not start. */
bool etcd_server_start(unsigned n);

void etcd_server_kill(unsigned member);    /* at once, as by a crash; its files stay */
void etcd_server_restart(unsigned member); /* after a kill; wait until it serves */
void etcd_server_spawn(unsigned member);   /* the same, without waiting */
void etcd_server_stop(void);               /* kill all members, and remove their files */

/* etcd_server_use_tls - clusters that are started from now on show this certificate, and want one
 * of this authority from each client. in: PEM files, the first with its key. */
void etcd_server_use_tls(const char *cert_file, const char *ca_file);

unsigned etcd_server_port(unsigned member);
unsigned etcd_server_peer_port(unsigned member);

/* etcd_server_fresh - the address of an empty store there, of all members; 512 bytes. */
void etcd_server_fresh(char *address);

/* etcd_server_bench - write keys of the first member through its gateway for so many seconds, on
 * each of n connections one at a time. out: writes a second. */
double etcd_server_bench(unsigned n, double seconds);

/* etcd_server_post - send a request to a member, without TLS. in: answer, max bytes, cut. out: its
 * status.
 * etcd_server_set_token - send this token with each later request. in: NULL: none. */
long etcd_server_post(unsigned member, const char *path, const char *json, char *answer,
                      size_t max);
void etcd_server_set_token(const char *token);

/* etcd_server_encode - append bytes to a text, in base64, as etcd's JSON has keys and values. */
void etcd_server_encode(char *text, const char *bytes, size_t len);
