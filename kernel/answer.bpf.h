/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A segment becomes the RST that this host would send for it, in its own buffer.
 */
#ifndef TIDEGATE_ANSWER_BPF_H
#define TIDEGATE_ANSWER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "segment.bpf.h"
#include "hook.bpf.h"

enum {
	CHECKSUM_PARTIAL = 3,		/* include/linux/skbuff.h */
	LABEL_REFLECT_RESET = 2,	/* FLOWLABEL_REFLECT_TCP_RESET, include/net/ipv6.h */
	LABEL_STATELESS = 0x80000,	/* IPV6_FLOWLABEL_STATELESS_FLAG, include/uapi/linux/in6.h */
};

/* Random, set at load: makes our IPv6 flow labels, and whom persistent dropping refuses, hard to predict. */
const volatile __u32 flow_seed = 0;

/* The same for every SYN of a flow; multiply-and-shift over the words, which is enough here. */
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

/* ---- What it takes from the host. ---- */

/* As ip6_dst_hoplimit(). Differs: a route's own hoplimit metric is not looked at. */
static __always_inline __u8 reset_hop_limit(void *ctx, enum hook hook)
{
	struct net_device *device = device_of(ctx, hook);

	if (!bpf_core_field_exists(device->ip6_ptr))
		return 0;
	return BPF_CORE_READ(device, ip6_ptr, cnf.hop_limit);
}

/* As ip4_dst_hoplimit(). Differs: a route's own hoplimit metric is not looked at. */
static __always_inline __u8 reset_ttl(struct net *net)
{
	return BPF_CORE_READ(net, ipv4.sysctl_ip_default_ttl);
}

/*
 * As tcp_v6_send_reset() and ip6_make_flowlabel(): the SYN's label if the host reflects, else a hash of the flow if
 * the host labels by itself. The hash is ours; the kernel's has a secret key.
 */
static __always_inline __u32 reset_flow_label(struct net *net, const struct segment *segment)
{
	__u32 label, automatic;

	if (!bpf_core_field_exists(net->ipv6))
		return 0;
	if (BPF_CORE_READ(net, ipv6.sysctl.flowlabel_reflect) & LABEL_REFLECT_RESET && segment->flow_label)
		return segment->flow_label;
	automatic = BPF_CORE_READ(net, ipv6.sysctl.auto_flowlabels);
	if (automatic != 1 && automatic != 3)
		return 0;
	label = hash_flow(segment) & FLOW_LABEL_MASK;
	if (BPF_CORE_READ(net, ipv6.sysctl.flowlabel_state_ranges))
		label |= LABEL_STATELESS;
	return label;
}

/*
 * Whether the device that sends the answer will add the checksum. A segment from a local or virtual sender comes
 * with only its pseudo header summed, and stays that way when we send it back. Native XDP starts a frame of its own.
 * Generic XDP sends the socket buffer but does not let us look at it; the sum itself gives it away (a
 * complete one is equal by chance once in 65,536: that answer is lost and the client tries again).
 */
static __always_inline bool checksum_is_partial(void *ctx, enum hook hook, const struct segment *segment)
{
	struct sk_buff *skb = ctx;

	if (hook == HOOK_TC)
		return BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed) == CHECKSUM_PARTIAL;
	if (hook == HOOK_XDP_GENERIC)
		return segment->checksum == fold(sum_pseudo_header(segment, segment->tcp_length));
	return false;
}

static __always_inline __u32 reset_for(void *ctx, enum hook hook, const struct segment *segment, struct net *net,
				       struct reset *reset)
{
	struct reset_style style = {};

	style.partial_checksum = checksum_is_partial(ctx, hook, segment);
	if (segment->is_ipv6) {
		style.ttl = reset_hop_limit(ctx, hook);
		style.flow_label = reset_flow_label(net, segment);
	} else {
		style.ttl = reset_ttl(net);
	}
	return build_reset(segment, &style, reset);
}

/* ---- Sending it: the SYN's own buffer becomes the answer. ---- */

enum sent {
	SENT,
	SENT_NOT,			/* the frame is as it came */
	SENT_LOST,			/* the frame is half rewritten */
};

/*
 * Options are cut out in front of the IP header and not behind it, so that the TCP header stays where it is in the
 * buffer: a partial checksum is completed from there. Only helpers write: direct writes would make the
 * verifier add a prologue that copies every cloned buffer, and all of TCP over veth is cloned.
 */
static __always_inline enum sent send_skb(struct __sk_buff *skb, const struct segment *segment,
					  const struct reset *reset, __u32 length)
{
	__u32 excess = excess_bytes(segment);
	__u8 mac[12];

	if (excess && bpf_skb_adjust_room(skb, -(__s32)excess, BPF_ADJ_ROOM_MAC, 0))
		return SENT_NOT;
	swap_macs(segment, mac);
	if (bpf_skb_change_tail(skb, segment->l3_offset + length, 0) ||
	    bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0))
		return SENT_LOST;
	if (segment->is_ipv6) {
		if (bpf_skb_store_bytes(skb, segment->l3_offset, &reset->v6, sizeof(reset->v6), 0))
			return SENT_LOST;
	} else if (bpf_skb_store_bytes(skb, segment->l3_offset, &reset->v4, sizeof(reset->v4), 0)) {
		return SENT_LOST;
	}
	return SENT;
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

static __always_inline enum sent send_xdp(struct xdp_md *xdp, const struct segment *segment,
					  const struct reset *reset, __u32 length)
{
	__u32 excess = excess_bytes(segment);
	__u32 trailer = segment->frame_length - excess - segment->l3_offset - length;
	__u8 mac[12];
	enum sent cut;

	if (excess) {
		cut = cut_xdp(xdp, segment->l3_offset, excess);
		if (cut != SENT)
			return cut;
	}
	swap_macs(segment, mac);
	if (bpf_xdp_adjust_tail(xdp, -(__s32)trailer) ||
	    bpf_xdp_store_bytes(xdp, 0, mac, sizeof(mac)))
		return SENT_LOST;
	if (segment->is_ipv6) {
		if (bpf_xdp_store_bytes(xdp, segment->l3_offset, (void *)&reset->v6, sizeof(reset->v6)))
			return SENT_LOST;
	} else if (bpf_xdp_store_bytes(xdp, segment->l3_offset, (void *)&reset->v4, sizeof(reset->v4))) {
		return SENT_LOST;
	}
	return SENT;
}

static __always_inline enum sent send_reset(void *ctx, enum hook hook, const struct segment *segment,
					    struct net *net)
{
	struct reset reset = {};
	__u32 length = reset_for(ctx, hook, segment, net, &reset);

	if (hook == HOOK_TC)
		return send_skb(ctx, segment, &reset, length);
	return send_xdp(ctx, segment, &reset, length);
}

#endif
