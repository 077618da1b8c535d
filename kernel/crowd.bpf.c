// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Gives a crowd its frames: TCP from the server under test to an address of the crowd. They go to
 * the AF_XDP socket of their receive queue, and all else to the kernel. A bridge gets every frame.
 *
 * A crowd's frame without a socket is dropped and counted. If it passed, a kernel with that address
 * would reset the connection. The servers send no VLAN tags, IPv4 options, IPv6 extension headers
 * and fragments. So the crowd does not get these.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "headers.h"

/* Fixed at load. Addresses in network byte order; an IPv4 address is in word 0. */
const volatile bool every_frame;	/* for a bridge; the settings below are not used then */
const volatile bool ipv6;
const volatile __be32 server_address[4];
const volatile __be16 server_port;
const volatile __be32 client_network[4];	/* bits outside client_mask are zero */
const volatile __be32 client_mask[4];		/* all zero: the crowd has every address */

/* Counts of frames, per CPU. */
struct crowd_counters {
	__u64 steered;		/* given to the AF_XDP socket, which may still lose them: see its statistics */
	__u64 passed;		/* not the crowd's; left to the kernel */
	__u64 unclaimed;	/* the crowd's, but their queue has no socket: dropped */
};

_Static_assert(sizeof(struct crowd_counters) == 3 * sizeof(__u64), "no padding: user space copies raw bytes");

#define MAX_QUEUES 64	/* as in crates/xsk, which opens a socket for each; a queue without one stays empty */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct crowd_counters);
} counters SEC(".maps");

static bool is_from_server_port(const struct tcp_header *tcp, const void *end)
{
	return (const void *)(tcp + 1) <= end && tcp->source == server_port;
}

static bool is_crowd_ipv4(const struct ipv4_header *ip, const void *end)
{
	if ((const void *)(ip + 1) > end || ip->version_ihl != 0x45 || ip->protocol != PROTOCOL_TCP)
		return false;
	if (ip->fragment & bpf_htons(IPV4_FRAGMENT_BITS))
		return false;
	if (ip->source != server_address[0] || (ip->destination & client_mask[0]) != client_network[0])
		return false;
	return is_from_server_port((const struct tcp_header *)(ip + 1), end);
}

static bool is_crowd_ipv6(const struct ipv6_header *ip, const void *end)
{
	if ((const void *)(ip + 1) > end || ip->next_header != PROTOCOL_TCP)
		return false;
	for (int word = 0; word < 4; word++) {
		if (ip->source[word] != server_address[word])
			return false;
		if ((ip->destination[word] & client_mask[word]) != client_network[word])
			return false;
	}
	return is_from_server_port((const struct tcp_header *)(ip + 1), end);
}

static bool is_crowd(const struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethernet_header *eth = (const void *)(long)ctx->data;

	if ((const void *)(eth + 1) > end)
		return false;
	if (ipv6)
		return eth->ethertype == bpf_htons(ETHERTYPE_IPV6) && is_crowd_ipv6((const void *)(eth + 1), end);
	return eth->ethertype == bpf_htons(ETHERTYPE_IPV4) && is_crowd_ipv4((const void *)(eth + 1), end);
}

static struct crowd_counters *this_cpu_counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static int give_to_socket(const struct xdp_md *ctx, struct crowd_counters *count)
{
	long action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);

	if (action == XDP_REDIRECT)
		count->steered++;
	else
		count->unclaimed++;
	return action;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	struct crowd_counters *count = this_cpu_counters();

	if (!count)	/* never: the array has this entry, but the verifier does not know */
		return XDP_PASS;
	if (every_frame)	/* in one condition with is_crowd(), clang's code costs the verifier 10 more */
		return give_to_socket(ctx, count);
	if (is_crowd(ctx))
		return give_to_socket(ctx, count);
	count->passed++;
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
