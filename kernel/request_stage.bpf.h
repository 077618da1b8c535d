/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The SYN stage once more for reserv, where the kernel is about to make the request socket, after
 * all checks of its own. There the queues are as they are when it is this SYN's turn, also if many
 * were received in one batch. SYNs come by that no program at an interface can read, such as those
 * in fragments. The stage can only tighten, and in silence.
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
	MAX_GUARDED_INTERFACES = 4096,	/* also in crates/guard */
};

/* Inode of the network namespace of the guard; the hook is the whole host's. */
const volatile __u32 guarded_netns = 0;

/* By ifindex; the value means nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GUARDED_INTERFACES);
	__type(key, __u32);
	__type(value, __u32);
} interfaces SEC(".maps");

/*
 * Whether the SYN came by an interface that we guard. Of a VLAN or a bond that is the upper device,
 * as __netif_receive_skb_core() sets skb_iif anew for each. Where only the lower one is guarded,
 * what was decided there stands alone.
 */
static __always_inline bool is_from_guarded(const struct sock *sk, struct sk_buff *skb)
{
	__u32 ifindex = BPF_CORE_READ(skb, skb_iif);

	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == guarded_netns &&
	       bpf_map_lookup_elem(&interfaces, &ifindex);
}

/* With CONFIG_IPV6 the kernel keeps IPv4 addresses in the mapped form beside their own. */
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
	enum verdict verdict;

	if (!is_from_guarded(sk, skb))
		return true;
	read_addresses(request, &key.address, &remote);
	key.port = bpf_htons(BPF_CORE_READ(request, __req_common.skc_num));
	if (!find_index(&key, !is_mapped(&key.address), &found) || !read_rule(found.index, &rule, &stats) ||
	    rule.policy.full != FULL_RESERVED)
		return true;
	read_load(sk, &load);
	attempt.is_reserved = is_reserved_source(&rule.policy, found.index, &remote);
	/*
	 * The SYN stage has decided about the server: here only queues and reserved places count.
	 */
	verdict = is_limit_found(&rule.policy) ? keep_reserved(&rule.policy, &load, &attempt)
						: admit_syn(&rule.policy, &load, &attempt);
	if (verdict == VERDICT_ADMIT)
		return true;
	if (rule.dry_run || !is_leased(bpf_ktime_get_ns()))
		return true; /* counted where it came in */
	stats->late++;
	return false;
}

#endif
