// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * REDFavor [RF] as the root qdisc of one interface, Linux 6.16 and newer. The decisions are in
 * red.h, and their order is that of crates/aqm/src/redfavor.rs. With the same packets, times and
 * random numbers both drop, push out and send the same.
 *
 * The kernel holds the qdisc's lock during enqueue, dequeue and reset. The lists have a lock only
 * because the verifier wants one.
 *
 * No ECN: such a program may not write to a packet.
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
#include "headers.h"
#include "protected.h"
#include "red.h"
#include "qdisc.bpf.h"
#include "root.bpf.h"
#include "kind.bpf.h"

/* Settings, fixed before the qdisc is made. */
struct redfavor_config {
	struct red_params red;
	struct redfavor_guard guard;
	struct root_config root;		/* if replayed, random numbers come from `random_numbers` */
	__u32 limit;				/* most that waits, in bytes or packets */
	__u32 limit_is_bytes;			/* 0: in packets */
	__u32 protected_kinds;			/* bits, 1 << enum packet_kind */
	__u32 reserved;
};

struct redfavor_queue {
	struct root_state root;
	struct red_state red;
	struct redfavor_state favor;
	struct length protected;		/* waiting packets of each kind */
	struct length standard;
	__u64 arrived_protected;		/* protected packets that arrived, were sent, and were dropped */
	__u64 sent_protected;
	__u64 dropped_protected;
};

_Static_assert(sizeof(struct redfavor_queue) % sizeof(__u64) == 0, "user space reads raw words");

/* A packet that waits. */
struct waiting {
	struct bpf_list_node node;
	struct sk_buff __kptr *skb;
	__u32 bytes;
	__u32 number;				/* by arrival */
};

struct waiting_lists {
	struct bpf_spin_lock lock;
	struct bpf_list_head protected __contains(waiting, node);
	struct bpf_list_head standard __contains(waiting, node);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct redfavor_config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct redfavor_queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct waiting_lists);
} lists SEC(".maps");

/* User space sets the size: one number for each packet of a replay. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} random_numbers SEC(".maps");

/* An arriving packet, as the decision needs it. */
struct arrival {
	__u64 now_ns;
	__u32 bytes;
	__u32 number;
	__u32 random;
	enum packet_kind kind;
	int is_protected;
};

/* The maps of one qdisc. */
struct own {
	const struct redfavor_config *config;
	struct redfavor_queue *queue;
	struct waiting_lists *lists;
};

static __always_inline bool find_own(struct own *own)
{
	__u32 only = 0;

	own->config = bpf_map_lookup_elem(&configs, &only);
	own->queue = bpf_map_lookup_elem(&queues, &only);
	own->lists = bpf_map_lookup_elem(&lists, &only);
	return own->config && own->queue && own->lists;
}

static __always_inline void note_packet(const struct own *own, __u64 now_ns, enum traced what, __u32 packet, __u32 bytes,
					__u32 detail)
{
	struct root_event event = {
		.time_ns = now_ns, .packet = packet, .bytes = bytes, .what = what, .detail = detail,
	};

	note(&own->config->root, &own->queue->root, &event);
}

static __always_inline __u32 random_number(const struct own *own)
{
	__u32 index = own->queue->root.arrived.pkts;
	const __u32 *number;

	if (!own->config->root.is_replayed)
		return bpf_get_prandom_u32();
	number = bpf_map_lookup_elem(&random_numbers, &index);
	return number ? *number : 0;
}

/* ---- The decision. ---- */

static __always_inline struct length length_of_all(const struct redfavor_queue *queue)
{
	return (struct length){
		.bytes = queue->protected.bytes + queue->standard.bytes,
		.pkts = queue->protected.pkts + queue->standard.pkts,
	};
}

/* A queue's length in RED's unit. */
static __always_inline __u32 red_length(const struct redfavor_config *config, const struct length *length)
{
	__u64 qlen = config->red.unit > 1 ? length->bytes : length->pkts;

	return qlen < RED_MOST ? qlen : RED_MOST;
}

static __always_inline bool has_room(const struct redfavor_config *config, const struct length *length, __u32 bytes)
{
	return config->limit_is_bytes ? length->bytes + bytes <= config->limit : length->pkts < config->limit;
}

static __always_inline bool has_room_beside_all(const struct own *own, __u32 bytes)
{
	struct length all = length_of_all(own->queue);

	return has_room(own->config, &all, bytes);
}

static __always_inline enum drop_reason decide_early(const struct own *own, const struct arrival *arrival)
{
	struct length all = length_of_all(own->queue);
	__u32 qlen = red_length(own->config, &all);

	red_update(&own->config->red, &own->queue->red, qlen, arrival->now_ns);
	switch (red_decide(&own->config->red, &own->queue->red, qlen, arrival->bytes, arrival->random)) {
	case RED_DROP_EARLY:
		return DROP_EARLY;
	case RED_DROP_FORCED:
		return DROP_FORCED;
	case RED_TAKE:
		break;
	}
	return NO_DROP;
}

static __always_inline __u32 last_standard_bytes(const struct own *own)
{
	struct bpf_list_node *node;
	__u32 bytes = 0;

	bpf_spin_lock(&own->lists->lock);
	node = bpf_list_back(&own->lists->standard);
	if (node)
		bytes = container_of(node, struct waiting, node)->bytes;
	bpf_spin_unlock(&own->lists->lock);
	return bytes;
}

static __always_inline void push_out(const struct own *own, __u64 now_ns, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	struct bpf_list_node *node;
	struct waiting *waiting;
	struct sk_buff *skb;
	__u32 bytes, number;

	bpf_spin_lock(&own->lists->lock);
	node = bpf_list_pop_back(&own->lists->standard);
	bpf_spin_unlock(&own->lists->lock);
	if (!node)
		return;
	waiting = container_of(node, struct waiting, node);
	bytes = waiting->bytes;
	number = waiting->number;
	skb = bpf_kptr_xchg(&waiting->skb, NULL);
	bpf_obj_drop_impl(waiting, NULL);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	take(&own->queue->standard, bytes);
	leave_qdisc(sch, bytes);
	count_drop(&own->queue->root, sch, DROP_PUSHED_OUT, bytes);
	note_packet(own, now_ns, TRACED_DROPPED, number, bytes, DROP_PUSHED_OUT);
}

static __always_inline enum drop_reason decide_standard(const struct own *own, const struct arrival *arrival)
{
	enum drop_reason early = decide_early(own, arrival);

	if (early != NO_DROP)
		return early;
	return has_room_beside_all(own, arrival->bytes) ? NO_DROP : DROP_TAIL;
}

static __always_inline enum drop_reason decide_protected(const struct own *own, const struct arrival *arrival, struct Qdisc *sch,
							 struct bpf_sk_buff_ptr *to_free)
{
	struct redfavor_queue *queue = own->queue;
	__u32 size = own->config->red.unit > 1 ? arrival->bytes : 1;
	enum drop_reason early, why;
	int needs_room, i;

	if (!redfavor_has_place(&own->config->guard, red_length(own->config, &queue->protected), size))
		return DROP_PROTECTED_SHARE;
	early = decide_early(own, arrival);
	why = early != NO_DROP ? early : DROP_TAIL;
	/* Pushing out all standard packets would not make enough room. */
	if (!has_room(own->config, &queue->protected, arrival->bytes))
		return why;
	needs_room = early != NO_DROP;
	bpf_for(i, 0, MAX_DRAINED) {
		if (!has_room_beside_all(own, arrival->bytes))
			needs_room = 1;
		switch (redfavor_make_room(&own->config->guard, &queue->favor, needs_room, last_standard_bytes(own))) {
		case REDFAVOR_TAKE:
			return NO_DROP;
		case REDFAVOR_PUSH_OUT:
			push_out(own, arrival->now_ns, sch, to_free);
			break;
		case REDFAVOR_DROP:
			return why;
		case REDFAVOR_DROP_SHARE:
			return DROP_PROTECTED_SHARE;
		}
		needs_room = 0;
	}
	return why;
}

static __always_inline void count_arrival(const struct own *own, const struct arrival *arrival)
{
	add(&own->queue->root.arrived, arrival->bytes);
	own->queue->arrived_protected += arrival->is_protected;
	note_packet(own, arrival->now_ns, TRACED_ARRIVED, arrival->number, arrival->bytes, arrival->kind);
}

SEC("struct_ops")
int BPF_PROG(enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	enum drop_reason reason;
	struct arrival arrival;
	struct waiting *waiting;
	struct own own;

	if (!find_own(&own)) {
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	arrival.now_ns = bpf_ktime_get_ns();
	arrival.bytes = packet_bytes(skb);
	arrival.number = own.queue->root.arrived.pkts;
	arrival.random = random_number(&own);
	arrival.kind = kind_of(skb);
	arrival.is_protected = is_protected(own.config->protected_kinds, arrival.kind);
	count_arrival(&own, &arrival);

	if (arrival.is_protected)
		reason = decide_protected(&own, &arrival, sch, to_free);
	else
		reason = decide_standard(&own, &arrival);
	if (reason != NO_DROP) {
		own.queue->dropped_protected += arrival.is_protected;
		count_drop(&own.queue->root, sch, reason, arrival.bytes);
		note_packet(&own, arrival.now_ns, TRACED_DROPPED, arrival.number, arrival.bytes, reason);
		bpf_qdisc_skb_drop(skb, to_free);
		/* As sch_red.c: a local sender sees an early drop as a loss in the network. */
		return reason == DROP_TAIL ? NET_XMIT_DROP : NET_XMIT_CN;
	}

	waiting = obj_new(struct waiting);
	if (!waiting) {
		add(&own.queue->root.unallocated, arrival.bytes);
		sch->qstats.drops++;
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	waiting->bytes = arrival.bytes;
	waiting->number = arrival.number;
	/* The new object held no packet. The verifier still wants one dropped. */
	skb = bpf_kptr_xchg(&waiting->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	bpf_spin_lock(&own.lists->lock);
	if (arrival.is_protected)
		bpf_list_push_back_impl(&own.lists->protected, &waiting->node, NULL, 0);
	else
		bpf_list_push_back_impl(&own.lists->standard, &waiting->node, NULL, 0);
	bpf_spin_unlock(&own.lists->lock);
	add(arrival.is_protected ? &own.queue->protected : &own.queue->standard, arrival.bytes);
	enter_qdisc(sch, arrival.bytes);
	return NET_XMIT_SUCCESS;
}

/* True when a protected packet goes next. At least one packet waits. */
static __always_inline bool protected_goes(const struct own *own)
{
	__u32 protected_bytes = 0, standard_bytes = 0;
	struct bpf_list_node *node;

	bpf_spin_lock(&own->lists->lock);
	node = bpf_list_front(&own->lists->protected);
	if (node)
		protected_bytes = container_of(node, struct waiting, node)->bytes;
	node = bpf_list_front(&own->lists->standard);
	if (node)
		standard_bytes = container_of(node, struct waiting, node)->bytes;
	bpf_spin_unlock(&own->lists->lock);
	return redfavor_sends_protected(&own->config->guard, &own->queue->favor, protected_bytes, standard_bytes);
}

SEC("struct_ops")
struct sk_buff *BPF_PROG(dequeue, struct Qdisc *sch)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct bpf_list_node *node;
	struct waiting *waiting;
	struct sk_buff *skb;
	__u32 bytes, number;
	bool is_protected;
	struct own own;

	if (!find_own(&own) || !length_of_all(own.queue).pkts || !may_send(&own.config->root, &own.queue->root, sch, now_ns))
		return NULL;
	is_protected = protected_goes(&own);
	bpf_spin_lock(&own.lists->lock);
	if (is_protected)
		node = bpf_list_pop_front(&own.lists->protected);
	else
		node = bpf_list_pop_front(&own.lists->standard);
	bpf_spin_unlock(&own.lists->lock);
	if (!node)
		return NULL;
	waiting = container_of(node, struct waiting, node);
	bytes = waiting->bytes;
	number = waiting->number;
	skb = bpf_kptr_xchg(&waiting->skb, NULL);
	bpf_obj_drop_impl(waiting, NULL);

	take(is_protected ? &own.queue->protected : &own.queue->standard, bytes);
	leave_qdisc(sch, bytes);
	if (!length_of_all(own.queue).pkts)
		red_left_empty(&own.queue->red, now_ns);
	spend_time(&own.config->root, &own.queue->root, bytes, now_ns);
	add(&own.queue->root.sent, bytes);
	own.queue->sent_protected += is_protected;
	note_packet(&own, now_ns, TRACED_SENT, number, bytes, 0);
	if (skb)
		bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

/* ---- Start and end. ---- */

SEC("struct_ops")
int BPF_PROG(init, struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
{
	struct own own;

	if (!find_own(&own))
		return -EINVAL;
	if (!own.queue->root.is_attached)
		redfavor_begin(&own.config->guard, &own.queue->favor);
	return begin_root(&own.config->root, &own.queue->root, sch);
}

/* False when the list is empty. */
static __always_inline bool throw_away_first(struct waiting_lists *lists, struct bpf_list_head *list)
{
	struct bpf_list_node *node;
	struct waiting *waiting;
	struct sk_buff *skb;

	bpf_spin_lock(&lists->lock);
	node = bpf_list_pop_front(list);
	bpf_spin_unlock(&lists->lock);
	if (!node)
		return false;
	waiting = container_of(node, struct waiting, node);
	skb = bpf_kptr_xchg(&waiting->skb, NULL);
	bpf_obj_drop_impl(waiting, NULL);
	if (skb)
		bpf_kfree_skb(skb);
	return true;
}

SEC("struct_ops")
void BPF_PROG(reset, struct Qdisc *sch)
{
	struct length all;
	struct own own;
	int i;

	if (!find_own(&own))
		return;
	bpf_for(i, 0, MAX_DRAINED)
		if (!throw_away_first(own.lists, &own.lists->protected))
			break;
	bpf_for(i, 0, MAX_DRAINED)
		if (!throw_away_first(own.lists, &own.lists->standard))
			break;
	all = length_of_all(own.queue);
	if (all.pkts)
		red_left_empty(&own.queue->red, bpf_ktime_get_ns());
	own.queue->protected = (struct length){};
	own.queue->standard = (struct length){};
	reset_root(&own.queue->root, &all, sch);
}

SEC("struct_ops")
void BPF_PROG(destroy, struct Qdisc *sch)
{
	struct own own;

	if (find_own(&own))
		end_root(&own.config->root, &own.queue->root, sch);
}

SEC(".struct_ops.link")
struct Qdisc_ops redfavor = {
	.id = "redfavor",
	.enqueue = (void *)enqueue,
	.dequeue = (void *)dequeue,
	.init = (void *)init,
	.reset = (void *)reset,
	.destroy = (void *)destroy,
};

char LICENSE[] SEC("license") = "GPL";
