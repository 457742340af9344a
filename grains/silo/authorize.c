/* authorize.c - asks the program's function whether a client may make a call. Asks before the
 * request is delivered, so that a refused call causes no look-up and no activation.
 * Way:     node/events -> [authorize] -> the program's function
 * Threads: any that reports events of the link. */
#include <string.h>
#include "activation/activation.h"
#include "activation/ident.h"
#include "activation/type.h"
#include "silo/silo.h"

/* Decodes the key of msg. in: copy: a buffer of TEFFI_KEY_BYTES_MAX + 1 bytes, into which *key may
 * point. out: false: the key is not of the kind that the type has on this silo. */
static bool decode_target_key(const teff_type_info *info, const teffi_msg *msg, uint8_t *copy,
                              teff_key *key)
{
    if (msg->key_len > TEFFI_KEY_BYTES_MAX)
        return false;
    if (msg->key_len)
        memcpy(copy, msg->key, msg->key_len);
    copy[msg->key_len] = 0;
    return teffi_key_decode(info->key_kind, copy, msg->key_len, key);
}

/* If this silo knows the grain's type, sets call->type, call->method and call->key. in: copy: as
 * for decode_target_key(). key: receives the decoded key. out: false: the key is not of the type's
 * kind. */
static bool describe_target_grain(const teffi_node *node, const teffi_msg *msg, uint8_t *copy,
                                  teff_key *key, teff_client_call *call)
{
    const teff_grain_type *type = teffi_type_find(node->grains, msg->type_id);
    if (!type)
        return true;
    const teff_method *method = teffi_method_find(type->info, msg->method_id);
    call->type = type->info->name;
    call->method = method ? method->name : NULL;
    call->key = key;
    return decode_target_key(type->info, msg, copy, key);
}

/* The node's `authorize`: asks the program's function. The client's connection is up, so the client
 * has proved that it owns the key of its certificate. out: true: the call may be delivered. */
static bool program_allows_call(teffi_node *node, const teffi_hello *client, const teffi_msg *msg)
{
    const teff_silo_options *opt = &teffi_container(node, teff_silo, node)->opt;
    uint8_t copy[TEFFI_KEY_BYTES_MAX + 1];
    teff_key key;
    teff_client_call call = {.size = sizeof call,
                             .client = teffi_node_to_word(msg->src),
                             .certificate = teffi_key_is_none(client->key) ? NULL : client->key,
                             .gateway = opt->gateway != NULL,
                             .tls = opt->tls_cert != NULL,
                             .secret = opt->secret_file != NULL,
                             .one_way = msg->item.kind == TEFFI_MSG_ONEWAY,
                             .type_id = msg->type_id,
                             .method_id = msg->method_id,
                             .key_bytes = msg->key,
                             .key_len = msg->key_len};
    return describe_target_grain(node, msg, copy, &key, &call) &&
           opt->authorize(opt->authorize_arg, &call) != 0;
}

void teffi_silo_set_authorize(teff_silo *silo)
{
    silo->node.authorize = silo->opt.authorize ? program_allows_call : NULL;
}
