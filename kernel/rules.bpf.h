/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the agent sets and reads: guarded listeners, their rules and counters. And which of them a
 * segment is for.
 */
#ifndef TIDEGATE_RULES_BPF_H
#define TIDEGATE_RULES_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "stats.h"
#include "verdict.h"
#include "segment.bpf.h"
#include "hook.bpf.h"
#include "martian.bpf.h"

enum {
	MAX_LISTENERS = 64,		/* also in crates/guard */
	MAX_KEYS = 2 * MAX_LISTENERS,	/* a dual-stack wildcard has two */
	MAX_OWN_ADDRESSES = 4096,	/* of the host; SYNs to more are passed */
	MAX_RESERVED_SOURCES = 1024,	/* networks, of all listeners together; also in crates/guard */
	HINTS = 128,			/* a power of two */
	HINT_KIND_BITS = 2,
};

/* Key of `listeners`: a destination. The wildcards are :: and ::ffff:0.0.0.0. */
struct listener_key {
	struct address address;
	__be16 port;
	__u16 zero;
};

/* What a place of `hints` is to those who look there. */
enum hint_kind {
	HINT_NONE,			/* nothing, or several, or it is being written: ask `listeners` */
	HINT_EXACT,			/* for the address */
	HINT_WILDCARD,			/* for whatever address of that port and family: no key names one */
};

/* A key of `listeners` and its index. */
struct listener_hint {
	__u32 kind;			/* enum hint_kind; above it a number, another one each time that the rest was written */
	struct listener_key key;
	__u32 index;
};

/* What the agent sets for one listener. */
struct listener_rule {
	struct listener_policy policy;
	__u32 dry_run;			/* not 0: count what would have been done, and pass */
	__u32 service;			/* index into `services`: one for all listeners of a server */
};

/* Key of `reserved`: a network of sources of one listener. */
struct reserved_key {
	__u32 prefix_bits;		/* of what follows */
	__u32 index;
	struct address address;
};

/* Of RST in answer to SYNs, all listeners together. */
struct refusal_budget {
	struct rate rate;		/* per_s 0: no limit */
	__u64 schedule_ns;		/* see next_schedule() */
};

/* A question to ask_listener() and its answer. */
struct listener_query {
	struct address address;		/* as in listener_key */
	__be16 port;
	__u16 is_ipv6;
	__u32 found;			/* enum found */
	__u32 family;
	struct listener_load load;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_KEYS);
	__type(key, struct listener_key);
	__type(value, __u32);		/* index into `rules` and `listener_stat` */
} listeners SEC(".maps");

/*
 * The keys of `listeners` that share their place with none, so that most segments are spared the
 * hash, which costs several times as much. The agent sets it after `listeners`, and forgets first
 * what it says. It writes in place, and nothing says in which order the kernel copies
 * (array_map_update_elem()): so it writes HINT_NONE before, and the kind behind, in calls of their
 * own, and who reads looks at the kind before and after.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HINTS);
	__type(key, __u32);
	__type(value, struct listener_hint);
} hints SEC(".maps");

/* The host's addresses, kept up to date by the agent: what a wildcard stands for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWN_ADDRESSES);
	__type(key, struct address);
	__type(value, __u32);		/* means nothing */
} own_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, __u32);
	__type(value, struct listener_rule);
} rules SEC(".maps");

/* Networks whose SYNs get the places that are reserved; the value means nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 2 * MAX_RESERVED_SOURCES); /* a reload adds before it forgets */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct reserved_key);
	__type(value, __u32);
} reserved SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct refusal_budget);
} budget SEC(".maps");

/* Token buckets; see next_schedule(). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, __u32);
	__type(value, __u64);
} schedules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, __u32);
	__type(value, struct listener_stats);
} listener_stat SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_stats);
} path_stat SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct listener_query);
} query SEC(".maps");

/*
 * Until when our decisions stand, ns of CLOCK_MONOTONIC; 0 is for ever. The agent renews it as long
 * as it runs: one that is stopped or hangs, and so can be asked nothing, leaves everything to the
 * kernel.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");

static __always_inline struct path_stats *path_counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&path_stat, &zero);
}

/* ---- The guarded listener that a segment is for. ---- */

/*
 * A wildcard listener is found for any destination, also for one that the host forwards or that
 * nobody has, so we look among the host's own addresses. Not bpf_fib_lookup(): it says "not
 * forwarded" of every destination on a host that does not forward.
 */
static __always_inline bool is_local(const struct address *address)
{
	return bpf_map_lookup_elem(&own_addresses, address);
}

/* What a segment's destination is to us. */
enum place {
	PLACE_GUARDED,
	PLACE_NOT_GUARDED,
	PLACE_MARTIAN,
	PLACE_OTHER_HOST,
};

static __always_inline bool is_leased(__u64 now)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&lease, &zero);

	return !until || !*until || now < *until;
}

/* Asked where something is to be done about a segment; counts one that is left to the kernel. */
static __always_inline bool may_act(__u64 now)
{
	struct path_stats *path;

	if (is_leased(now))
		return true;
	path = path_counters();
	if (path)
		path->unleased++;
	return false;
}

/* Also in crates/guard. Of 80, 443, 8080 and 8443 no two share one. */
static __always_inline __u32 hint_place(__be16 port, bool is_ipv6)
{
	__u32 number = bpf_ntohs(port);

	return ((number ^ number >> 6) << 1 | is_ipv6) & (HINTS - 1);
}

/* The index of a guarded destination, and whether by a wildcard. */
struct found_index {
	__u32 index;
	bool is_wildcard;
};

/* False if `listeners` must be asked. */
static __always_inline bool find_hint(const struct listener_key *key, bool is_ipv6, struct found_index *found)
{
	__u32 place = hint_place(key->port, is_ipv6), word;
	struct listener_hint *hint = bpf_map_lookup_elem(&hints, &place);
	enum hint_kind kind;

	if (!hint)
		return false;
	word = *(volatile __u32 *)&hint->kind;
	kind = word & ((1 << HINT_KIND_BITS) - 1);
	if (kind == HINT_NONE || *(volatile __be16 *)&hint->key.port != key->port)
		return false;
	if (kind == HINT_EXACT && __builtin_memcmp(&hint->key.address, &key->address, sizeof(key->address)))
		return false;
	found->index = *(volatile __u32 *)&hint->index;
	found->is_wildcard = kind == HINT_WILDCARD;
	return *(volatile __u32 *)&hint->kind == word;
}

/*
 * Finds the index of a guarded destination, the exact address before the wildcard. Changes the key.
 */
static __always_inline bool find_index(struct listener_key *key, bool is_ipv6, struct found_index *found)
{
	__u32 *index;

	if (find_hint(key, is_ipv6, found))
		return true;
	index = bpf_map_lookup_elem(&listeners, key);
	found->is_wildcard = !index;
	if (!index) {
		if (is_ipv6)
			__builtin_memset(&key->address, 0, sizeof(key->address));
		else
			key->address.word[3] = 0;
		index = bpf_map_lookup_elem(&listeners, key);
	}
	if (!index)
		return false;
	found->index = *index;
	return true;
}

/* Finds the guarded listener of a segment; `index` is meant when there is one. */
static __always_inline enum place find_place(void *ctx, enum hook hook, const struct segment *segment, __u32 *index)
{
	struct listener_key key = { .address = segment->destination, .port = segment->destination_port };
	struct found_index found = {};

	if (!find_index(&key, segment->is_ipv6, &found))
		return PLACE_NOT_GUARDED;
	*index = found.index;
	if (is_martian(segment, ifindex_of(ctx, hook)))
		return PLACE_MARTIAN;
	/*
	 * The key again, not the segment's: Linux 6.1 takes none out of a global function's
	 * argument, and stack is short.
	 */
	key.address = segment->destination;
	if (!is_for_host(ctx, hook, segment) || (found.is_wildcard && !is_local(&key.address)))
		return PLACE_OTHER_HOST;
	return PLACE_GUARDED;
}

/*
 * The rule of a listener, copied because the agent may change it under us, and its counters. False
 * only if the index is none, which the verifier cannot rule out.
 */
static __always_inline bool read_rule(__u32 index, struct listener_rule *rule, struct listener_stats **stats)
{
	struct listener_rule *found = bpf_map_lookup_elem(&rules, &index);

	*stats = bpf_map_lookup_elem(&listener_stat, &index);
	if (!found || !*stats)
		return false;
	*rule = *found;
	return true;
}

static __always_inline bool is_reserved_source(const struct listener_policy *policy, __u32 index,
					       const struct address *source)
{
	struct reserved_key key = { .prefix_bits = 32 + 128, .index = index, .address = *source };

	return policy->reserved_slots && bpf_map_lookup_elem(&reserved, &key);
}

#endif
