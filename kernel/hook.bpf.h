/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Hides the differences between tc and XDP: facts that are not in the frame, and actions. It
 * decides nothing.
 */
#ifndef TIDEGATE_HOOK_BPF_H
#define TIDEGATE_HOOK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "segment.bpf.h"

enum {
	PACKET_HOST = 0,		/* include/uapi/linux/if_packet.h */
};

/* The hook of a program. Always a constant, so that each program keeps only its own branches. */
enum hook {
	HOOK_TC,
	HOOK_XDP,
	HOOK_XDP_GENERIC,
};

enum action {
	ACTION_PASS,
	ACTION_DROP,
	ACTION_SEND_BACK,
};

/* From Linux 6.2. Fields of its result can be read without a helper's call for each step. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

static __always_inline struct net_device *device_of(void *ctx, enum hook hook)
{
	struct xdp_buff *xdp;

	if (hook == HOOK_TC)
		return BPF_CORE_READ((struct sk_buff *)ctx, dev);
	if (!bpf_ksym_exists(bpf_cast_to_kern_ctx))
		return BPF_CORE_READ((struct xdp_buff *)ctx, rxq, dev);
	xdp = bpf_cast_to_kern_ctx(ctx);
	return xdp->rxq->dev;
}

/*
 * The network namespace in which the kernel, and bpf_skc_lookup_tcp(), look for a frame's socket.
 * Only bpf_probe_read_kernel() may read it.
 */
static __always_inline struct net *net_of_frame(void *ctx, enum hook hook)
{
	struct net_device *device = device_of(ctx, hook);

	if (hook != HOOK_TC && bpf_ksym_exists(bpf_cast_to_kern_ctx))
		return device->nd_net.net;
	return BPF_CORE_READ(device, nd_net.net);
}

/*
 * True when the frame's destination address is the device's (Ethernet). In XDP the program must
 * compare, because the kernel marks other frames only in their socket buffer. A helper is called
 * only where the device does not hold the address itself.
 */
static __always_inline bool xdp_is_for_host(void *ctx, const struct segment *segment)
{
	struct net_device *device = device_of(ctx, HOOK_XDP);
	__u8 mac[6] = {};

	if (bpf_ksym_exists(bpf_cast_to_kern_ctx) && bpf_core_field_exists(device->dev_addr_shadow))
		__builtin_memcpy(mac, device->dev_addr_shadow, sizeof(mac));
	else
		bpf_probe_read_kernel(mac, sizeof(mac), BPF_CORE_READ(device, dev_addr));
	return !__builtin_memcmp(mac, segment->mac, sizeof(mac));
}

static __always_inline bool is_for_host(void *ctx, enum hook hook, const struct segment *segment)
{
	if (hook == HOOK_TC)
		return ((struct __sk_buff *)ctx)->pkt_type == PACKET_HOST;
	return xdp_is_for_host(ctx, segment);
}

static __always_inline __u32 ifindex_of(void *ctx, enum hook hook)
{
	if (hook == HOOK_TC)
		return ((struct __sk_buff *)ctx)->ifindex;
	return ((struct xdp_md *)ctx)->ingress_ifindex;
}

/* Writes 2 or 4 bytes of a TCP header in a socket buffer, and corrects the checksum. */
static __always_inline bool replace_in_tcp(struct __sk_buff *skb, const struct segment *segment, __u32 offset, __be32 before,
					   __be32 after, __u32 size)
{
	__u32 tcp = segment->l4_offset;

	return !bpf_l4_csum_replace(skb, tcp + __builtin_offsetof(struct tcp_header, checksum), before, after, size) &&
	       !bpf_skb_store_bytes(skb, tcp + offset, &after, size, 0);
}

#endif
