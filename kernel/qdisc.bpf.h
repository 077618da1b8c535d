/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Declares the kernel's side of a queue discipline in BPF, Linux 6.16 and newer. It has no queue of
 * its own. Sources, checked on v7.2: struct Qdisc_ops and its kfuncs in net/sched/bpf_qdisc.c,
 * lists and trees of packets in kernel/bpf/helpers.c.
 *
 * The includer provides vmlinux.h, bpf_helpers.h and bpf_core_read.h.
 */
#ifndef TIDEGATE_QDISC_BPF_H
#define TIDEGATE_QDISC_BPF_H

/* Results of enqueue, include/linux/netdevice.h. */
enum {
	NET_XMIT_SUCCESS = 0,
	NET_XMIT_DROP = 1,			/* a local TCP counts it as not sent, and tries again */
	NET_XMIT_CN = 2,			/* a local TCP counts it as sent, and lost on the way */
};

/*
 * Holds the packets that enqueue drops, net/sched/bpf_qdisc.c. The kernel frees them after it has
 * released the lock.
 */
struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire, __u64 delta_ns) __ksym;
void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;
void bpf_kfree_skb(struct sk_buff *skb) __ksym;

int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *dynptr) __ksym;
void *bpf_dynptr_slice(const struct bpf_dynptr *dynptr, __u64 offset, void *buffer, __u64 buffer__szk) __ksym;

void *bpf_obj_new_impl(__u64 local_type_id, void *meta) __ksym;
void bpf_obj_drop_impl(void *object, void *meta) __ksym;
int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta, __u64 offset) __ksym;
struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
struct bpf_list_node *bpf_list_pop_back(struct bpf_list_head *head) __ksym;
struct bpf_list_node *bpf_list_front(struct bpf_list_head *head) __ksym;
struct bpf_list_node *bpf_list_back(struct bpf_list_head *head) __ksym;
int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			bool (less)(struct bpf_rb_node *, const struct bpf_rb_node *), void *meta, __u64 offset) __ksym;
struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) __ksym;
struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
struct bpf_rb_node *bpf_rbtree_root(struct bpf_rb_root *root) __ksym;
struct bpf_rb_node *bpf_rbtree_right(struct bpf_rb_root *root, struct bpf_rb_node *node) __ksym;

/* Tells the verifier the contents of a list or tree: struct `name`, linked by its field `node`. */
#define __contains(name, node) __attribute__((btf_decl_tag("contains:" #name ":" #node)))

#define obj_new(type) ((type *)bpf_obj_new_impl(bpf_core_type_id_local(type), NULL))

/*
 * Packet length as queue disciplines count it: with the Ethernet header. A large buffer counts with
 * the headers of all its segments.
 */
static __always_inline __u32 packet_bytes(const struct sk_buff *skb)
{
	return ((const struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

#endif
