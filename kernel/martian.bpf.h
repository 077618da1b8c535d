/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Finds SYNs that the guard must not answer, by their addresses. It passes them, and drops none. */
#ifndef TIDEGATE_MARTIAN_BPF_H
#define TIDEGATE_MARTIAN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "segment.bpf.h"

enum {
	LOOPBACK_IFINDEX = 1,		/* include/net/flow.h */
};

static __always_inline bool is_mapped(const struct address *address)
{
	return !address->word[0] && !address->word[1] && address->word[2] == bpf_htonl(0xffff);
}

/* True for `::`. It is a key of `listeners`, and never the address of a host. */
static __always_inline bool is_unspecified(const struct address *address)
{
	return !address->word[0] && !address->word[1] && !address->word[2] && !address->word[3];
}

/* 127.0.0.0/8 and ::1. */
static __always_inline bool is_loopback(const struct segment *segment, const struct address *address)
{
	if (!segment->is_ipv6)
		return bpf_ntohl(address->word[3]) >> 24 == 127;
	return !address->word[0] && !address->word[1] && !address->word[2] && address->word[3] == bpf_htonl(1);
}

/* True when no single host has the address, as in ip_route_input_slow() and ip6_rcv_core(). */
static __always_inline bool is_nobody(const struct segment *segment, const struct address *address)
{
	__u32 first = bpf_ntohl(address->word[0]) >> 24, ipv4 = bpf_ntohl(address->word[3]);

	if (segment->is_ipv6)
		return first == 0xff || is_mapped(address) || is_unspecified(address);
	return ipv4 >> 24 == 0 || ipv4 >> 28 == 0xe || ipv4 == 0xffffffff;
}

/*
 * True when the kernel would not answer this SYN, whatever listens. An answer could go to a
 * multicast sender or to this host. It could use an address that is not this host's.
 */
static __always_inline bool is_martian(const struct segment *segment, __u32 ifindex)
{
	const struct address *source = &segment->source, *destination = &segment->destination;

	if (segment->mac[6] & 1 || is_nobody(segment, source) || is_nobody(segment, destination))
		return true;
	if (ifindex == LOOPBACK_IFINDEX)
		return false;
	return is_loopback(segment, source) || is_loopback(segment, destination) ||
	       !__builtin_memcmp(source, destination, sizeof(*source));
}

#endif
