// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * SRPT [SH06] and LAS as root qdiscs of one interface, Linux 6.16 and newer. The rules are at the
 * top of crates/aqm/src/ranked.rs. With the same flows and ranks both drop, push out and send the
 * same.
 *
 * A qdisc's program may not use a socket's storage. So tell() runs at tcx egress, which a packet
 * passes before its qdisc. It learns the bytes left (left.bpf.h). It writes rank and flow into the
 * packet's `cb` for enqueue().
 *
 * The first packet of each flow waits in a tree, by rank and number. Later packets wait in a list
 * of their flow. The kernel holds the qdisc's lock during enqueue, dequeue and reset. Tree and
 * lists have locks only because the verifier wants them.
 */
/*
 * Kernel functions have fixed arguments, and some are not read here. Some functions of the headers
 * are not used.
 */
#pragma clang diagnostic ignored "-Wunused-parameter"
#pragma clang diagnostic ignored "-Wunused-function"

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "bands.h"

/* State of a connection, for left.bpf.h. */
struct flow {
	struct response response;
};

#include "left.bpf.h"
#include "qdisc.bpf.h"
#include "root.bpf.h"

char LICENSE[] SEC("license") = "GPL";

enum {
	MAX_DEPTH = 64,			/* of the tree: twice the logarithm of any number of packets, and more */
	NO_DATA = SIZE_SOURCES,		/* instead of a source: no data, or no connection of this host */
	UNTOLD = SIZE_SOURCES + 1,	/* instead of a source: tell() has not seen the packet */
	BY_SOURCE = SIZE_SOURCES + 2,
};

#define HASHED_FLOW (1ull << 63)	/* set: the flow's number is a hash; else a socket cookie */
#define TOLD_MARK 0x74676c00u		/* "tgl"; the last byte is the source */

/* Settings, fixed before the qdisc is made. */
struct srpt_config {
	struct root_config root;
	__u32 limit;				/* packets that may wait, of all flows and of one */
	__u32 flow_limit;
	__u32 sources;				/* for people: sources at work, bits of enum size_source */
	__u32 reserved;
};

struct srpt_queue {
	struct root_state root;
	struct length waiting;
	__u64 flows;				/* flows with waiting packets */
	__u64 by_source[BY_SOURCE];		/* arrived packets, by the source of their rank */
};

_Static_assert(sizeof(struct srpt_queue) % sizeof(__u64) == 0, "user space reads raw words");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct srpt_config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct srpt_queue);
} queues SEC(".maps");

/* ---- The rank and the flow, from tell(). ---- */

struct place {
	__u64 rank;				/* the smallest goes first */
	__u64 flow;
	__u32 source;				/* enum size_source, or one of the values above */
};

/*
 * Ranks a segment with data by the bytes left of its response, or by the bytes sent. A FIN or RST
 * goes behind the data of its connection. A RST that overtook the data would destroy it at the
 * client.
 */
static __always_inline void place_segment(struct __sk_buff *skb, struct tcp_sock *tcp, const struct headers *headers,
					  struct place *place)
{
	struct outgoing outgoing;
	struct response *response;
	struct flow *flow;

	if (headers->flags & TCP_SYN || !(headers->payload_length || headers->flags & (TCP_FIN | TCP_RST)))
		return;
	place->flow = bpf_get_socket_cookie(skb);
	if (!headers->payload_length)
		return;
	flow = bpf_sk_storage_get(&flows, tcp, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow)
		return;
	response = &flow->response;
	read_outgoing(tcp, headers, &outgoing);
	if (begins_response(response, &outgoing))
		begin_response(response, &outgoing);
	place->rank = learn_left(skb, flow, tcp, headers, &outgoing);
	place->source = response->source;
	note_sent(response, &outgoing);
}

/* Every other packet goes first: without data, or of no connection of this host. */
static __always_inline void find_place(struct __sk_buff *skb, struct place *place)
{
	struct bpf_sock *sk = skb->sk;
	struct headers headers;
	struct tcp_sock *tcp;

	place->rank = 0;
	place->flow = 0;
	place->source = NO_DATA;
	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (sk && sk->protocol == PROTOCOL_TCP) {
		tcp = bpf_skc_to_tcp_sock(sk);
		if (tcp && read_headers(skb, &headers))
			place_segment(skb, tcp, &headers, place);
	}
	if (!place->flow)
		place->flow = HASHED_FLOW | bpf_get_hash_recalc(skb);
}

SEC("tc")
int tell(struct __sk_buff *skb)
{
	__u32 only = 0;
	const struct srpt_queue *queue = bpf_map_lookup_elem(&queues, &only);
	struct place place;

	if (!queue || !queue->root.is_attached)
		return TC_ACT_UNSPEC;
	find_place(skb, &place);
	skb->cb[0] = place.rank;
	skb->cb[1] = place.rank >> 32;
	skb->cb[2] = place.flow;
	skb->cb[3] = place.flow >> 32;
	skb->cb[4] = TOLD_MARK | place.source;
	return TC_ACT_UNSPEC;
}

static __always_inline __u32 told_word(const struct sk_buff *skb, __u32 index)
{
	return *(const __u32 *)&((const struct qdisc_skb_cb *)skb->cb)->data[4 * index];
}

/* A packet that tell() has not seen goes first. All of these are one flow. */
static __always_inline void read_place(const struct sk_buff *skb, struct place *place)
{
	__u32 mark = told_word(skb, 4);

	place->rank = 0;
	place->flow = 0;
	place->source = UNTOLD;
	if ((mark & ~0xffu) != TOLD_MARK)
		return;
	place->rank = (__u64)told_word(skb, 1) << 32 | told_word(skb, 0);
	place->flow = (__u64)told_word(skb, 3) << 32 | told_word(skb, 2);
	place->source = mark & 0xff;
}

/* ---- Waiting packets. ---- */

/*
 * The order of a flow among the others: that of its first packet. No two flows have the same
 * number.
 */
struct key {
	__u64 rank;
	__u64 number;				/* of the packet, by arrival */
};

static __always_inline bool is_before(const struct key *key, const struct key *other)
{
	return key->rank < other->rank || (key->rank == other->rank && key->number < other->number);
}

/* A packet that waits. */
struct waiting {
	struct bpf_rb_node first;		/* in the tree, or */
	struct bpf_list_node later;		/* in its flow's list, never in both */
	struct bpf_refcount references;		/* always 1; two nodes require it */
	struct sk_buff __kptr *skb;
	struct key key;
	__u64 flow;
	__u32 bytes;
	__u32 reserved;
};

struct first_packets {
	struct bpf_spin_lock lock;
	struct bpf_rb_root tree __contains(waiting, first);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct first_packets);
} firsts SEC(".maps");

/* A flow with waiting packets. */
struct waiting_flow {
	struct bpf_spin_lock lock;
	__u32 pkts;
	struct key key;
	struct bpf_list_head later __contains(waiting, later);
};

/* User space sets the size: as many entries as packets may wait. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct waiting_flow);
} waiting_flows SEC(".maps");

/* The maps of one qdisc. */
struct own {
	const struct srpt_config *config;
	struct srpt_queue *queue;
	struct first_packets *firsts;
};

static __always_inline bool find_own(struct own *own)
{
	__u32 only = 0;

	own->config = bpf_map_lookup_elem(&configs, &only);
	own->queue = bpf_map_lookup_elem(&queues, &only);
	own->firsts = bpf_map_lookup_elem(&firsts, &only);
	return own->config && own->queue && own->firsts;
}

static bool has_lesser_key(struct bpf_rb_node *node, const struct bpf_rb_node *other)
{
	return is_before(&container_of(node, struct waiting, first)->key, &container_of(other, struct waiting, first)->key);
}

static __always_inline void add_first(struct first_packets *firsts, struct waiting *waiting)
{
	bpf_spin_lock(&firsts->lock);
	bpf_rbtree_add_impl(&firsts->tree, &waiting->first, has_lesser_key, NULL, 0);
	bpf_spin_unlock(&firsts->lock);
}

/* The first packet of the flow with the greatest key. The caller holds the tree's lock. */
static __always_inline struct bpf_rb_node *find_greatest(struct first_packets *firsts)
{
	struct bpf_rb_node *node = bpf_rbtree_root(&firsts->tree), *right;
	int i;

	if (!node)
		return NULL;
	bpf_for(i, 0, MAX_DEPTH) {
		right = bpf_rbtree_right(&firsts->tree, node);
		if (!right)
			break;
		node = right;
	}
	return node;
}

static __always_inline struct waiting *waiting_of(struct bpf_list_node *later)
{
	if (!later)
		return NULL;
	/* The verifier forbids arithmetic before the check, where the compiler would put it. */
	barrier_var(later);
	return container_of(later, struct waiting, later);
}

/* The data of a packet that has left. */
struct gone {
	struct key key;
	__u64 flow;
	__u32 bytes;
};

static __always_inline struct sk_buff *unpack(struct waiting *waiting, struct gone *gone)
{
	struct sk_buff *skb;

	gone->key = waiting->key;
	gone->flow = waiting->flow;
	gone->bytes = waiting->bytes;
	skb = bpf_kptr_xchg(&waiting->skb, NULL);
	bpf_obj_drop_impl(waiting, NULL);
	return skb;
}

/* Makes the next packet of a flow its first. */
static __always_inline void promote_next(const struct own *own, struct waiting_flow *flow)
{
	struct bpf_list_node *node;
	struct waiting *waiting;

	bpf_spin_lock(&flow->lock);
	node = bpf_list_pop_front(&flow->later);
	bpf_spin_unlock(&flow->lock);
	waiting = waiting_of(node);
	if (!waiting)
		return;
	flow->key = waiting->key;
	add_first(own->firsts, waiting);
}

static __always_inline void forget(const struct own *own, struct waiting_flow *flow, __u64 number)
{
	if (--flow->pkts)
		return;
	bpf_map_delete_elem(&waiting_flows, &number);
	own->queue->flows--;
}

/* Takes the packet that goes next off the queue; NULL if none waits. */
static __always_inline struct waiting *take_least(const struct own *own)
{
	struct bpf_rb_node *node;

	bpf_spin_lock(&own->firsts->lock);
	node = bpf_rbtree_first(&own->firsts->tree);
	if (node)
		node = bpf_rbtree_remove(&own->firsts->tree, node);
	bpf_spin_unlock(&own->firsts->lock);
	return node ? container_of(node, struct waiting, first) : NULL;
}

static __always_inline void note_packet(const struct own *own, __u64 now_ns, enum traced what, const struct gone *packet,
					__u32 detail)
{
	struct root_event event = {
		.time_ns = now_ns, .rank = packet->key.rank, .flow = packet->flow, .packet = packet->key.number,
		.bytes = packet->bytes, .what = what, .detail = detail,
	};

	note(&own->config->root, &own->queue->root, &event);
}

/* ---- A packet arrives. ---- */

/* Number of the flow with the greatest key. `found`: that key is greater than `key`. */
static __always_inline __u64 find_behind(const struct own *own, const struct key *key, bool *found)
{
	struct waiting *greatest;
	struct bpf_rb_node *node;
	__u64 number = 0;

	*found = false;
	bpf_spin_lock(&own->firsts->lock);
	node = find_greatest(own->firsts);
	if (node) {
		greatest = container_of(node, struct waiting, first);
		*found = is_before(key, &greatest->key);
		number = greatest->flow;
	}
	bpf_spin_unlock(&own->firsts->lock);
	return number;
}

/* Takes the last packet of a flow off the queue. */
static __always_inline struct waiting *take_last(const struct own *own, struct waiting_flow *flow)
{
	struct bpf_list_node *later;
	struct bpf_rb_node *only;

	if (flow->pkts > 1) {
		bpf_spin_lock(&flow->lock);
		later = bpf_list_pop_back(&flow->later);
		bpf_spin_unlock(&flow->lock);
		return waiting_of(later);
	}
	/* The only packet of this flow. It has the greatest key. */
	bpf_spin_lock(&own->firsts->lock);
	only = find_greatest(own->firsts);
	if (only)
		only = bpf_rbtree_remove(&own->firsts->tree, only);
	bpf_spin_unlock(&own->firsts->lock);
	return only ? container_of(only, struct waiting, first) : NULL;
}

/* True when a flow behind `key` lost its last packet. */
static __always_inline bool push_out(const struct own *own, const struct key *key, __u64 now_ns, struct Qdisc *sch,
				     struct bpf_sk_buff_ptr *to_free)
{
	struct waiting_flow *flow;
	struct waiting *waiting;
	struct sk_buff *skb;
	struct gone gone;
	__u64 number;
	bool found;

	number = find_behind(own, key, &found);
	if (!found)
		return false;
	flow = bpf_map_lookup_elem(&waiting_flows, &number);
	if (!flow)
		return false;
	waiting = take_last(own, flow);
	if (!waiting)
		return false;
	skb = unpack(waiting, &gone);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	forget(own, flow, number);
	take(&own->queue->waiting, gone.bytes);
	leave_qdisc(sch, gone.bytes);
	count_drop(&own->queue->root, sch, DROP_PUSHED_OUT, gone.bytes);
	note_packet(own, now_ns, TRACED_DROPPED, &gone, DROP_PUSHED_OUT);
	return true;
}

static __always_inline enum drop_reason decide(const struct own *own, const struct waiting_flow *flow, const struct gone *arrival,
					       __u64 now_ns, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	struct key key = arrival->key;

	if (flow && flow->pkts >= own->config->flow_limit)
		return DROP_FLOW_LIMIT;
	if (own->queue->waiting.pkts < own->config->limit)
		return NO_DROP;
	if (flow)
		key = flow->key;
	return push_out(own, &key, now_ns, sch, to_free) ? NO_DROP : DROP_TAIL;
}

/* False when the map has no room for a new flow. */
static __always_inline bool begin_flow(const struct own *own, const struct gone *arrival)
{
	struct waiting_flow begun = { .pkts = 1, .key = arrival->key };

	if (bpf_map_update_elem(&waiting_flows, &arrival->flow, &begun, BPF_NOEXIST))
		return false;
	own->queue->flows++;
	return true;
}

SEC("struct_ops")
int BPF_PROG(enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct waiting_flow *flow;
	struct waiting *waiting;
	enum drop_reason reason;
	struct gone arrival;
	struct place place;
	struct own own;

	if (!find_own(&own)) {
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	read_place(skb, &place);
	arrival.key.rank = place.rank;
	arrival.key.number = own.queue->root.arrived.pkts;
	arrival.flow = place.flow;
	arrival.bytes = packet_bytes(skb);
	add(&own.queue->root.arrived, arrival.bytes);
	if (place.source < BY_SOURCE)
		own.queue->by_source[place.source]++;
	note_packet(&own, now_ns, TRACED_ARRIVED, &arrival, 0);

	flow = bpf_map_lookup_elem(&waiting_flows, &arrival.flow);
	reason = decide(&own, flow, &arrival, now_ns, sch, to_free);
	if (reason != NO_DROP) {
		count_drop(&own.queue->root, sch, reason, arrival.bytes);
		note_packet(&own, now_ns, TRACED_DROPPED, &arrival, reason);
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}

	waiting = obj_new(struct waiting);
	if (!waiting)
		goto unallocated;
	if (!flow && !begin_flow(&own, &arrival)) {
		bpf_obj_drop_impl(waiting, NULL);
		goto unallocated;
	}
	waiting->key = arrival.key;
	waiting->flow = arrival.flow;
	waiting->bytes = arrival.bytes;
	/* The new object held no packet. The verifier still wants one dropped. */
	skb = bpf_kptr_xchg(&waiting->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	if (flow) {
		flow->pkts++;
		bpf_spin_lock(&flow->lock);
		bpf_list_push_back_impl(&flow->later, &waiting->later, NULL, 0);
		bpf_spin_unlock(&flow->lock);
	} else {
		add_first(own.firsts, waiting);
	}
	add(&own.queue->waiting, arrival.bytes);
	enter_qdisc(sch, arrival.bytes);
	return NET_XMIT_SUCCESS;

unallocated:
	add(&own.queue->root.unallocated, arrival.bytes);
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

/* ---- A packet leaves. ---- */

/* Updates the counts after a flow's first packet has left. */
static __always_inline void follow_up(const struct own *own, const struct gone *gone)
{
	struct waiting_flow *flow = bpf_map_lookup_elem(&waiting_flows, &gone->flow);

	take(&own->queue->waiting, gone->bytes);
	if (!flow)
		return;
	promote_next(own, flow);
	forget(own, flow, gone->flow);
}

SEC("struct_ops")
struct sk_buff *BPF_PROG(dequeue, struct Qdisc *sch)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct waiting *waiting;
	struct sk_buff *skb;
	struct gone gone;
	struct own own;

	if (!find_own(&own) || !own.queue->waiting.pkts || !may_send(&own.config->root, &own.queue->root, sch, now_ns))
		return NULL;
	waiting = take_least(&own);
	if (!waiting)
		return NULL;
	skb = unpack(waiting, &gone);
	follow_up(&own, &gone);
	leave_qdisc(sch, gone.bytes);
	spend_time(&own.config->root, &own.queue->root, gone.bytes, now_ns);
	add(&own.queue->root.sent, gone.bytes);
	note_packet(&own, now_ns, TRACED_SENT, &gone, 0);
	if (skb)
		bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

/* ---- Start and end. ---- */

SEC("struct_ops")
int BPF_PROG(init, struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
{
	struct own own;

	return find_own(&own) ? begin_root(&own.config->root, &own.queue->root, sch) : -EINVAL;
}

SEC("struct_ops")
void BPF_PROG(reset, struct Qdisc *sch)
{
	struct waiting *waiting;
	struct sk_buff *skb;
	struct length all;
	struct gone gone;
	struct own own;
	int i;

	if (!find_own(&own))
		return;
	all = own.queue->waiting;
	bpf_for(i, 0, MAX_DRAINED) {
		waiting = take_least(&own);
		if (!waiting)
			break;
		skb = unpack(waiting, &gone);
		if (skb)
			bpf_kfree_skb(skb);
		follow_up(&own, &gone);
	}
	reset_root(&own.queue->root, &all, sch);
}

SEC("struct_ops")
void BPF_PROG(destroy, struct Qdisc *sch)
{
	struct own own;

	if (find_own(&own))
		end_root(&own.config->root, &own.queue->root, sch);
}

/* The agent makes one of the two. They differ only in `sources`. */
SEC(".struct_ops.link")
struct Qdisc_ops srpt = {
	.id = "srpt",
	.enqueue = (void *)enqueue,
	.dequeue = (void *)dequeue,
	.init = (void *)init,
	.reset = (void *)reset,
	.destroy = (void *)destroy,
};

SEC(".struct_ops.link")
struct Qdisc_ops las = {
	.id = "las",
	.enqueue = (void *)enqueue,
	.dequeue = (void *)dequeue,
	.init = (void *)init,
	.reset = (void *)reset,
	.destroy = (void *)destroy,
};
