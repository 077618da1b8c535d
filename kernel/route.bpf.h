/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The way of an answer. It goes back to where the segment came from, unless the host's routes say
 * otherwise. Behind a balancer with direct return they do: the segment comes from the balancer, and
 * the answer must go to the client's router.
 *
 * The agent copies the main routing table here, because bpf_fib_lookup() does not help. On a host
 * that does not forward, it says "not forwarded" of every destination (bpf_ipv4_fib_lookup(), Linux
 * 6.18).
 */
#ifndef TIDEGATE_ROUTE_BPF_H
#define TIDEGATE_ROUTE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "segment.bpf.h"
#include "hook.bpf.h"
#include "martian.bpf.h"

enum {
	MAX_ROUTES = 4096,		/* the same in crates/guard */
	ETHERNET_BYTES = 14,
};

/* Key of `routes`: a network of clients. */
struct route_key {
	__u32 prefix_bits;
	struct address address;
};

enum route_kind {
	ROUTE_BACK,			/* the client is on the link, or the agent does not know better */
	ROUTE_ROUTER,
	ROUTE_NONE,			/* no route leads there */
};

struct route {
	enum route_kind kind;
	__u32 ifindex;			/* it leaves by this interface */
	__u8 mac[12];			/* of the router, and of that interface */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 2 * MAX_ROUTES); /* a change adds before it removes */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct route_key);
	__type(value, struct route);
} routes SEC(".maps");

/* Memory for a key, because the stack has no room for it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_key);
} route_keys SEC(".maps");

/* NULL: back. A client on this host is told by the loopback. */
static __always_inline const struct route *find_route(const struct segment *segment, __u32 arrived)
{
	struct route_key *key;
	__u32 zero = 0;

	key = bpf_map_lookup_elem(&route_keys, &zero);
	if (!key || arrived == LOOPBACK_IFINDEX)
		return NULL;
	key->prefix_bits = 128;
	key->address = segment->source;
	return bpf_map_lookup_elem(&routes, key);
}

/*
 * The route of an answer, NULL for back to where the segment came from. XDP sends only by the
 * interface by which the segment arrived. A frame with a tag inside goes back.
 */
static __always_inline const struct route *choose_route(enum hook hook, const struct segment *segment, __u32 arrived)
{
	const struct route *route = find_route(segment, arrived);

	if (!route || route->kind == ROUTE_BACK)
		return NULL;
	if (route->kind == ROUTE_ROUTER &&
	    (segment->l3_offset != ETHERNET_BYTES || (hook != HOOK_TC && route->ifindex != arrived)))
		return NULL;
	return route;
}

#endif
