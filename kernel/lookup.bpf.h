/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Finds the kernel's socket for an incoming segment. The caller must release it. */
#ifndef TIDEGATE_LOOKUP_BPF_H
#define TIDEGATE_LOOKUP_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "segment.bpf.h"

/*
 * Looks as if the segment came from `source_port`. The helper tells IPv4 from IPv6 by the size of
 * the tuple.
 */
static __always_inline void *lookup_socket_from(void *ctx, const struct segment *segment, __be16 source_port)
{
	struct bpf_sock_tuple tuple = {};

	if (segment->is_ipv6) {
		__builtin_memcpy(tuple.ipv6.saddr, &segment->source, 16);
		__builtin_memcpy(tuple.ipv6.daddr, &segment->destination, 16);
		tuple.ipv6.sport = source_port;
		tuple.ipv6.dport = segment->destination_port;
		return bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	tuple.ipv4.saddr = segment->source.word[3];
	tuple.ipv4.daddr = segment->destination.word[3];
	tuple.ipv4.sport = source_port;
	tuple.ipv4.dport = segment->destination_port;
	return bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline void *lookup_socket(void *ctx, const struct segment *segment)
{
	return lookup_socket_from(ctx, segment, segment->source_port);
}

#endif
