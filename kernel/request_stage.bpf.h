/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The SYN stage once more, for reserv. It runs just before the kernel makes the request socket,
 * after the kernel's own checks. Here the queues are exact, also for SYNs received in one batch. It
 * also sees SYNs that no program at an interface can read, such as fragments. The stage never
 * admits more, and never answers.
 */
#ifndef TIDEGATE_REQUEST_STAGE_BPF_H
#define TIDEGATE_REQUEST_STAGE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "verdict.h"
#include "segment.bpf.h"
#include "listener.bpf.h"
#include "martian.bpf.h"
#include "rules.bpf.h"

enum {
	MAX_GUARDED_INTERFACES = 4096,	/* the same in crates/guard */
};

/* Inode of the guard's network namespace. The hook sees the whole host. */
const volatile __u32 guarded_netns = 0;

/* Guarded interfaces, by ifindex. The value is unused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GUARDED_INTERFACES);
	__type(key, __u32);
	__type(value, __u32);
} interfaces SEC(".maps");

/*
 * True when the SYN came by a guarded interface. For a VLAN or a bond that is the upper device,
 * because __netif_receive_skb_core() sets skb_iif for each. If only the lower one is guarded, this
 * stage does nothing.
 */
static __always_inline bool is_from_guarded(const struct sock *sk, struct sk_buff *skb)
{
	__u32 ifindex = BPF_CORE_READ(skb, skb_iif);

	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == guarded_netns &&
	       bpf_map_lookup_elem(&interfaces, &ifindex);
}

/* With CONFIG_IPV6 the kernel also keeps IPv4 addresses in mapped form. */
static __always_inline void read_addresses(struct request_sock *request, struct address *local, struct address *remote)
{
	if (bpf_core_field_exists(request->__req_common.skc_v6_rcv_saddr)) {
		BPF_CORE_READ_INTO(local, request, __req_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(remote, request, __req_common.skc_v6_daddr);
		return;
	}
	local->word[2] = bpf_htonl(0xffff);
	local->word[3] = BPF_CORE_READ(request, __req_common.skc_rcv_saddr);
	remote->word[2] = bpf_htonl(0xffff);
	remote->word[3] = BPF_CORE_READ(request, __req_common.skc_daddr);
}

static __always_inline bool may_request(struct sock *sk, struct sk_buff *skb, struct request_sock *request)
{
	struct listener_stats *stats;
	struct listener_load load = {};
	struct listener_key key = {};
	struct attempt attempt = {};
	struct listener_rule rule;
	struct address remote = {};
	struct found_index found;
	enum source_kind kind;
	enum verdict verdict;

	if (!is_from_guarded(sk, skb))
		return true;
	read_addresses(request, &key.address, &remote);
	key.port = bpf_htons(BPF_CORE_READ(request, __req_common.skc_num));
	if (!find_index(&key, !is_mapped(&key.address), &found) || !read_rule(found.index, &rule, &stats) ||
	    rule.policy.full != FULL_RESERVED)
		return true;
	read_load(sk, &load);
	kind = source_kind(&rule, found.index, &remote);
	if (kind == SOURCE_EXEMPT)
		return true;
	attempt.is_reserved = kind == SOURCE_RESERVED;
	/* The SYN stage has asked about the server. Here only queues and reserved places count. */
	verdict = is_limit_found(&rule.policy) ? keep_reserved(&rule.policy, &load, &attempt)
						: admit_syn(&rule.policy, &load, &attempt);
	if (verdict == VERDICT_ADMIT)
		return true;
	if (rule.dry_run || !is_leased(bpf_ktime_get_ns()))
		return true; /* the SYN stage has counted it */
	stats->late++;
	return false;
}

#endif
