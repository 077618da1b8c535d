/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Turns a segment into this host's answer, a RST or a SYN/ACK, in the segment's own buffer. It does
 * not decide whether to answer.
 */
#ifndef TIDEGATE_ANSWER_BPF_H
#define TIDEGATE_ANSWER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "cookie.h"
#include "segment.bpf.h"
#include "hook.bpf.h"
#include "route.bpf.h"

enum {
	CHECKSUM_UNNECESSARY = 1,	/* with the next: include/linux/skbuff.h */
	CHECKSUM_PARTIAL = 3,
	LABEL_REFLECT_RESET = 2,	/* FLOWLABEL_REFLECT_TCP_RESET, include/net/ipv6.h */
	LABEL_STATELESS = 0x80000,	/* IPV6_FLOWLABEL_STATELESS_FLAG, include/uapi/linux/in6.h */
};

/* A random number, set at load. It hides the classes that persistent dropping refuses. */
const volatile __u32 flow_seed = 0;

/* The random key of IPv6 flow labels, set at load: a label shows 20 bits of a hash to everybody. */
const volatile struct cookie_key label_key = {};

/* A hash that every SYN of a flow shares. Multiply-and-shift over the words is enough here. */
static __always_inline __u32 hash_flow(const struct segment *segment)
{
	__u32 hash = flow_seed, i;

	for (i = 0; i < 4; i++) {
		hash = (hash ^ segment->source.word[i]) * 0x9e3779b1;
		hash = (hash ^ (hash >> 15) ^ segment->destination.word[i]) * 0x85ebca77;
		hash ^= hash >> 13;
	}
	hash = (hash ^ (__u32)segment->source_port << 16 ^ segment->destination_port) * 0xc2b2ae3d;
	return hash ^ (hash >> 16);
}

/* ---- What the answer takes from the host. ---- */

/* As ip6_dst_hoplimit(). Differs: ignores the hoplimit metric of a route. */
static __always_inline __u8 answer_hop_limit(void *ctx, enum hook hook)
{
	struct net_device *device = device_of(ctx, hook);

	if (!bpf_core_field_exists(device->ip6_ptr))
		return 0;
	return BPF_CORE_READ(device, ip6_ptr, cnf.hop_limit);
}

/* As ip4_dst_hoplimit(). Differs: ignores the hoplimit metric of a route. */
static __always_inline __u8 answer_ttl(struct net *net)
{
	return BPF_CORE_READ(net, ipv4.sysctl_ip_default_ttl);
}

static __always_inline __u64 address_half(const struct address *address, __u32 half)
{
	return (__u64)address->word[2 * half + 1] << 32 | address->word[2 * half];
}

/* SipHash of the flow. It is not inline, to spare its caller the stack. */
static __noinline __u32 hash_label(const struct segment *segment)
{
	struct siphash state;

	siphash_begin(&state, label_key.word[0], label_key.word[1]);
	siphash_add(&state, address_half(&segment->source, 0));
	siphash_add(&state, address_half(&segment->source, 1));
	siphash_add(&state, address_half(&segment->destination, 0));
	siphash_add(&state, address_half(&segment->destination, 1));
	return siphash_end(&state, (__u64)segment->destination_port << 16 | segment->source_port);
}

/* As ip6_make_flowlabel(): a keyed hash of the flow, if the host makes labels. */
static __always_inline __u32 automatic_flow_label(struct net *net, const struct segment *segment)
{
	__u32 automatic, label;

	if (!bpf_core_field_exists(net->ipv6))
		return 0;
	automatic = BPF_CORE_READ(net, ipv6.sysctl.auto_flowlabels);
	if (automatic != 1 && automatic != 3)
		return 0;
	label = hash_label(segment) & FLOW_LABEL_MASK;
	if (BPF_CORE_READ(net, ipv6.sysctl.flowlabel_state_ranges))
		label |= LABEL_STATELESS;
	return label;
}

/* As tcp_v6_send_reset(): the SYN's label, if the host reflects it. */
static __always_inline __u32 reset_flow_label(struct net *net, const struct segment *segment)
{
	if (bpf_core_field_exists(net->ipv6) && segment->flow_label &&
	    BPF_CORE_READ(net, ipv6.sysctl.flowlabel_reflect) & LABEL_REFLECT_RESET)
		return segment->flow_label;
	return automatic_flow_label(net, segment);
}

/*
 * True when the device that sends the answer will add the checksum. A local or virtual sender sums
 * only the pseudo header. An answer in the same buffer must do so, too.
 *
 * Native XDP starts a frame of its own. Generic XDP sends the socket buffer but does not show it,
 * so the sum itself must tell. By chance it is wrong once in 65,536: that answer is lost, and the
 * client tries again.
 */
static __always_inline bool checksum_is_partial(void *ctx, enum hook hook, const struct segment *segment)
{
	struct sk_buff *skb = ctx;

	if (hook == HOOK_TC)
		return BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed) == CHECKSUM_PARTIAL;
	if (hook == HOOK_XDP_GENERIC)
		return has_pseudo_sum(segment);
	return false;
}

static __always_inline struct answer_style answer_style(void *ctx, enum hook hook, const struct segment *segment)
{
	struct answer_style style = {};

	style.partial_checksum = checksum_is_partial(ctx, hook, segment);
	style.ttl = segment->is_ipv6 ? answer_hop_limit(ctx, hook) : answer_ttl(net_of_frame(ctx, hook));
	return style;
}

/* ---- Sending it: the segment's own buffer becomes the answer. ---- */

enum sent {
	SENT,
	SENT_NOT,			/* the frame is as it came */
	SENT_LOST,			/* the frame is half rewritten */
};

static __always_inline __u32 answer_bytes(const struct segment *segment)
{
	struct answer *answer;

	return segment->is_ipv6 ? sizeof(answer->v6) : sizeof(answer->v4);
}

/*
 * Gives the buffer the answer's size, without IP options and extension headers. They are cut out in
 * front of the IP header. So the TCP header keeps its place in the buffer, from where a partial
 * checksum is completed.
 *
 * Only helpers write. For direct writes the verifier adds a prologue that copies every cloned
 * buffer. All of TCP over veth is cloned.
 */
static __always_inline enum sent reshape_skb(struct __sk_buff *skb, const struct segment *segment, __u32 length)
{
	__u32 excess = excess_bytes(segment);

	if (excess && bpf_skb_adjust_room(skb, -(__s32)excess, BPF_ADJ_ROOM_MAC, 0))
		return SENT_NOT;
	return bpf_skb_change_tail(skb, segment->l3_offset + length, 0) ? SENT_LOST : SENT;
}

/* Moves the frame's start, with its addresses and tags, `excess` bytes towards the TCP header. */
static __always_inline enum sent cut_xdp(struct xdp_md *xdp, __u32 l2_bytes, __u32 excess)
{
	__u8 l2[MAX_L2_BYTES];

	if (l2_bytes < sizeof(struct ethernet_header) || l2_bytes > sizeof(l2))
		return SENT_NOT;
	if (bpf_xdp_load_bytes(xdp, 0, l2, l2_bytes) || bpf_xdp_adjust_head(xdp, excess))
		return SENT_NOT;
	return bpf_xdp_store_bytes(xdp, 0, l2, l2_bytes) ? SENT_LOST : SENT;
}

static __always_inline enum sent reshape_xdp(struct xdp_md *xdp, const struct segment *segment, __u32 length)
{
	__u32 excess = excess_bytes(segment);
	__s32 growth = segment->l3_offset + length + excess - segment->frame_length;
	enum sent cut;

	if (excess) {
		cut = cut_xdp(xdp, segment->l3_offset, excess);
		if (cut != SENT)
			return cut;
	}
	return bpf_xdp_adjust_tail(xdp, growth) ? SENT_LOST : SENT;
}

static __always_inline bool store(void *ctx, enum hook hook, __u32 offset, const void *bytes, __u32 size)
{
	if (hook == HOOK_TC)
		return !bpf_skb_store_bytes(ctx, offset, bytes, size, 0);
	return !bpf_xdp_store_bytes(ctx, offset, (void *)bytes, size);
}

/*
 * Memory for an answer, because the stack has no room for it. No other ingress program interrupts
 * one on the same CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

static __always_inline struct answer *clean_answer(void)
{
	struct answer *answer;
	__u32 zero = 0;

	answer = bpf_map_lookup_elem(&answers, &zero);
	if (answer)
		__builtin_memset(answer, 0, sizeof(*answer));
	return answer;
}

/*
 * In XDP the program writes the frame in place. It writes words, because clang does not know the
 * alignment and would copy bytes.
 */
static __always_inline bool store_words(struct xdp_md *xdp, __u32 offset, const __u32 *words, __u32 count)
{
	__u32 *to, i;

	if (offset > MAX_L2_BYTES)
		return false;
	to = (void *)(long)xdp->data + offset;
	if ((void *)(to + count) > (void *)(long)xdp->data_end)
		return false;
	for (i = 0; i < count; i++)
		to[i] = words[i];
	return true;
}

/* `size` is a constant, and a multiple of 4. */
static __always_inline enum sent store_headers(void *ctx, enum hook hook, __u32 offset, const void *headers, __u32 size)
{
	bool is_stored = hook == HOOK_TC ? store(ctx, hook, offset, headers, size) :
					   store_words(ctx, offset, headers, size / sizeof(__u32));

	return is_stored ? SENT : SENT_LOST;
}

/*
 * Sends the answer, with `options_bytes` after it that the caller stores. At tc the frame leaves
 * when the program returns TC_ACT_REDIRECT.
 */
static __always_inline enum sent send_back(void *ctx, enum hook hook, const struct segment *segment,
					   const struct answer *answer, __u32 options_bytes)
{
	__u32 length = answer_bytes(segment) + options_bytes;
	__u8 mac[12] __attribute__((aligned(4)));
	const struct route *route;
	enum sent reshaped;
	__u32 arrived = ifindex_of(ctx, hook);

	route = choose_route(hook, segment, arrived);
	if (route && route->kind == ROUTE_NONE)
		return SENT_NOT;
	reshaped = hook == HOOK_TC ? reshape_skb(ctx, segment, length) : reshape_xdp(ctx, segment, length);
	if (reshaped != SENT)
		return reshaped;
	/* A tag is of the way that the segment came by. Without one this does nothing. */
	if (hook == HOOK_TC && route && bpf_skb_vlan_pop(ctx))
		return SENT_LOST;
	if (route)
		__builtin_memcpy(mac, route->mac, sizeof(route->mac));
	else
		swap_macs(segment, mac);
	if (store_headers(ctx, hook, 0, mac, sizeof(mac)) != SENT)
		return SENT_LOST;
	if (hook == HOOK_TC && bpf_redirect(route ? route->ifindex : arrived, 0) != TC_ACT_REDIRECT)
		return SENT_LOST;
	if (segment->is_ipv6)
		return store_headers(ctx, hook, segment->l3_offset, &answer->v6, sizeof(answer->v6));
	return store_headers(ctx, hook, segment->l3_offset, &answer->v4, sizeof(answer->v4));
}

static __always_inline enum sent build_and_send_reset(void *ctx, enum hook hook, const struct segment *segment)
{
	struct answer_style style = answer_style(ctx, hook, segment);
	struct answer *answer = clean_answer();

	if (!answer)
		return SENT_NOT;
	if (segment->is_ipv6)
		style.flow_label = reset_flow_label(net_of_frame(ctx, hook), segment);
	build_reset(segment, &style, answer);
	return send_back(ctx, hook, segment, answer, 0);
}

/*
 * Each is a function of its own, so that others do not carry its stack frame. A program and its
 * callees share 512 bytes.
 */

static __noinline int send_reset_tc(struct __sk_buff *skb, const struct segment *segment)
{
	return build_and_send_reset(skb, HOOK_TC, segment);
}

static __noinline int send_reset_xdp(struct xdp_md *xdp, const struct segment *segment)
{
	return build_and_send_reset(xdp, HOOK_XDP, segment);
}

static __noinline int send_reset_xdp_generic(struct xdp_md *xdp, const struct segment *segment)
{
	return build_and_send_reset(xdp, HOOK_XDP_GENERIC, segment);
}

static __always_inline enum sent send_reset(void *ctx, enum hook hook, const struct segment *segment)
{
	switch (hook) {
	case HOOK_TC:
		return send_reset_tc(ctx, segment);
	case HOOK_XDP:
		return send_reset_xdp(ctx, segment);
	default:
		return send_reset_xdp_generic(ctx, segment);
	}
}

#endif
