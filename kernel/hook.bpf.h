/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Where a program runs, what it can say there about the frame that is not in the frame, and what can become of it.
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

/* Where we run. Always a constant, so that each program keeps only its own branches. */
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

/* From Linux 6.2: what it gives can be read without a helper's call for each step. */
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

/* Without a helper's call where the kernel has the address in the device itself. */
static __always_inline bool has_address(void *ctx, const __u32 *mac)
{
	struct net_device *device = device_of(ctx, HOOK_XDP);
	__u32 own[2] = {};

	if (bpf_ksym_exists(bpf_cast_to_kern_ctx) && bpf_core_field_exists(device->dev_addr_shadow))
		return *(__u32 *)device->dev_addr_shadow == mac[0] && *(__u16 *)&device->dev_addr_shadow[4] == (__u16)mac[1];
	bpf_probe_read_kernel(own, 6, BPF_CORE_READ(device, dev_addr));
	return own[0] == mac[0] && own[1] == (__u16)mac[1];
}

/* Drivers mark frames to other Ethernet addresses only once they have a socket buffer; in XDP we look ourselves. */
static __always_inline bool xdp_is_for_host(void *ctx, const struct segment *segment)
{
	__u32 mac[2];

	__builtin_memcpy(mac, segment->mac, sizeof(mac));
	return has_address(ctx, mac);
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

#endif
