/* sim_views.c - checks of the views that frames carry, and of the silos whose frames are taken.
 * Way:     sim_wire (sent), sim_conn (arrived) -> [sim_views] -> sim_fail */
#include "cluster/membership.h"
#include "sim_net.h"

/* out: NULL: the net's owner is no silo, or not open yet. */
static teffi_node *find_silo(const sim_net *net)
{
    teffi_node *node = net->self.role == TEFFI_ROLE_SILO ? net->arg : NULL;
    return node && node->membership ? node : NULL;
}

void sim_views_check_sent(const sim_net *from)
{
    teffi_node *node = find_silo(from);
    if (node && teffi_membership_version(node) > from->view)
        sim_fail(from->node->sim, "%s sends by view %lu, its frames carry view %lu",
                 from->node->name, (unsigned long)teffi_membership_version(node),
                 (unsigned long)from->view);
}

bool sim_views_has_left(const sim_net *net)
{
    const teffi_node *node = net->freed ? NULL : find_silo(net);
    return net->left || (node && node->membership->left);
}

/* A view that has a later start of a silo does not tell whether the earlier one is dead or left. */
void sim_views_check_given(const sim_side *to)
{
    const sim_net *net = to->net, *from = to->conn->side[!sim_conn_side(to->conn, net)].net;
    teffi_node *node = find_silo(net);
    teffi_node_id id = to->other.node;
    if (!node || to->other.role != TEFFI_ROLE_SILO || sim_views_has_left(from))
        return;
    const teffi_view *view = teffi_view_ref_current(node);
    if (view && teffi_view_standing(view, id) == TEFFI_STANDING_DEAD)
        sim_fail(net->node->sim, "%s takes a message of the silo %08x, which is dead in view %lu",
                 net->node->name, id.silo, (unsigned long)view->version);
    teffi_view_unref(view);
}
