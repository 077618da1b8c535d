/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Maps that the agent sets and reads: guarded listeners, their rules and counters. The code finds
 * the guarded listener of a segment, and decides nothing about it.
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
	MAX_LISTENERS = 64,		/* the same in crates/guard */
	MAX_KEYS = 2 * MAX_LISTENERS,	/* a dual-stack wildcard has two */
	MAX_OWN_ADDRESSES = 4096,	/* of the host; SYNs to further ones pass */
	MAX_SOURCES = 1024,		/* named networks of all listeners together; the same in crates/guard */
	HINTS = 128,			/* a power of two */
	HINT_KIND_BITS = 2,
};

/* Key of `listeners`, a destination. The wildcards are :: and ::ffff:0.0.0.0. */
struct listener_key {
	struct address address;
	__be16 port;
	__u16 zero;
};

/* The meaning of an entry of `hints`. */
enum hint_kind {
	HINT_NONE,			/* no key, several keys, or being written: ask `listeners` */
	HINT_EXACT,			/* one key, for its address */
	HINT_WILDCARD,			/* one key, for every address of that port and family */
};

/* One key of `listeners` and its index. */
struct listener_hint {
	__u32 kind;			/* enum hint_kind; the bits above hold a number that changes with each write */
	struct listener_key key;
	__u32 index;
};

/* Settings of one listener, from the agent. */
struct listener_rule {
	struct listener_policy policy;
	__u32 dry_run;			/* not 0: count the verdict, and pass */
	__u32 has_sources;		/* not 0: `sources` has networks of this listener */
	__u32 service;			/* index into `services`; a server's listeners share it */
};

/* Key of `sources`: a listener's index and a network. */
struct source_key {
	__u32 prefix_bits;		/* length of the prefix of what follows */
	__u32 index;
	struct address address;
};

/* The value of `sources`: what the operator has said of a client's network. */
enum source_kind {
	SOURCE_ANY,			/* nothing */
	SOURCE_RESERVED,		/* gets the reserved places */
	SOURCE_EXEMPT,			/* the kernel decides about it alone */
};

/* Budget of answers to SYNs, RSTs and cookies, for all listeners together. */
struct refusal_budget {
	struct rate rate;		/* per_s 0: no limit */
	__u64 schedule_ns;		/* see next_schedule() */
};

/* A question to ask_listener(), and its answer. */
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
 * Keys of `listeners` that share their entry with no other key. A hint spares most segments the
 * hash, which costs several times as much. The agent sets a hint after `listeners`, and clears it
 * before.
 *
 * The kernel copies a value in place and in no stated order (array_map_update_elem()). So the agent
 * writes HINT_NONE first and the kind last, in separate calls. The reader checks the kind before
 * and after.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HINTS);
	__type(key, __u32);
	__type(value, struct listener_hint);
} hints SEC(".maps");

/* The host's addresses, kept up to date by the agent. A wildcard stands for these. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWN_ADDRESSES);
	__type(key, struct address);
	__type(value, __u32);		/* unused */
} own_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, __u32);
	__type(value, struct listener_rule);
} rules SEC(".maps");

/* Networks of clients that are treated otherwise. The longest prefix counts. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 2 * MAX_SOURCES); /* a reload adds before it removes */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, enum source_kind);
} sources SEC(".maps");

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
 * Verdicts hold until this time, ns of CLOCK_MONOTONIC; 0: for ever. The agent renews it while it
 * runs. If the agent stops or hangs, the kernel decides alone.
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
 * A wildcard matches every destination, also one that the host forwards or does not own. So the
 * program looks among the host's own addresses. The helper bpf_fib_lookup() does not help. On a
 * host that does not forward it says "not forwarded" of every destination.
 */
static __always_inline bool is_local(const struct address *address)
{
	return bpf_map_lookup_elem(&own_addresses, address);
}

/* The destination of a segment, as the guard sees it. */
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

/*
 * The caller is about to act on a segment. False leaves the segment to the kernel, and counts it.
 */
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

/* The same in crates/guard. The ports 80, 443, 8080 and 8443 share no entry. */
static __always_inline __u32 hint_place(__be16 port, bool is_ipv6)
{
	__u32 number = bpf_ntohs(port);

	return ((number ^ number >> 6) << 1 | is_ipv6) & (HINTS - 1);
}

/* The index of a guarded destination. */
struct found_index {
	__u32 index;
	bool is_wildcard;
};

/* False when `listeners` must be asked. */
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
 * Finds the index of a guarded destination; the exact address goes before the wildcard. Changes the
 * key.
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

/*
 * Finds the guarded listener of a segment. `index` is set unless the result is PLACE_NOT_GUARDED.
 */
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
	 * Uses the key's address: Linux 6.1 accepts no pointer into a global function's argument. A
	 * second copy would take too much stack.
	 */
	key.address = segment->destination;
	if (!is_for_host(ctx, hook, segment) || (found.is_wildcard && !is_local(&key.address)))
		return PLACE_OTHER_HOST;
	return PLACE_GUARDED;
}

/*
 * Copies the rule of a listener, because the agent may change it meanwhile, and finds its counters.
 * False only for an index out of range. The verifier cannot rule that out.
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

static __always_inline enum source_kind source_kind(const struct listener_rule *rule, __u32 index,
						    const struct address *source)
{
	struct source_key key = { .prefix_bits = 32 + 128, .index = index, .address = *source };
	enum source_kind *kind;

	if (!rule->has_sources)
		return SOURCE_ANY;
	kind = bpf_map_lookup_elem(&sources, &key);
	return kind ? *kind : SOURCE_ANY;
}

#endif
