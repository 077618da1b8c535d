/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The ACK stage: may this handshake finish? The FIN stage: may the peer half-close? At tc only, since they send segments on to
 * the kernel with other flags.
 */
#ifndef TIDEGATE_LATER_STAGES_BPF_H
#define TIDEGATE_LATER_STAGES_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "verdict.h"
#include "segment.bpf.h"
#include "listener.bpf.h"
#include "hook.bpf.h"
#include "rules.bpf.h"
#include "armed.bpf.h"
#include "answer.bpf.h"
#include "syn_ack.bpf.h"

/* Sets and clears flags, the checksum with them. False if the buffer cannot be written; then it is as it came. */
static __always_inline bool change_flags(struct __sk_buff *skb, const struct segment *segment, __u8 set, __u8 clear)
{
	__u32 tcp = segment->l4_offset, offset = tcp + __builtin_offsetof(struct tcp_header, offset);
	__be16 before, after;

	/* The 16-bit word of which flags are the second byte. */
	if (bpf_skb_load_bytes(skb, offset, &before, sizeof(before)))
		return false;
	after = (before | bpf_htons(set)) & ~bpf_htons(clear);
	return !bpf_l4_csum_replace(skb, tcp + __builtin_offsetof(struct tcp_header, checksum), before, after,
				    sizeof(after)) &&
	       !bpf_skb_store_bytes(skb, offset, &after, sizeof(after), 0);
}

struct found_rule {
	struct listener_rule rule;
	struct listener_stats *stats;
	__u32 index;
};

/* The rule of the guarded listener that a segment is for, if it is for one. */
static __always_inline bool find_rule(struct __sk_buff *skb, const struct segment *segment, struct found_rule *found)
{
	found->index = 0;
	return find_place(skb, HOOK_TC, segment, &found->index) == PLACE_GUARDED &&
	       read_rule(found->index, &found->rule, &found->stats);
}

/*
 * Sets SYN on the segment that would complete a handshake. The kernel answers that with a RST and forgets the request
 * (tcp_check_req(), `embryonic_reset`, as tcp_abort_on_overflow=1 has it); for a handshake by cookie the listener answers
 * (tcp_rcv_state_process(), TCP_LISTEN). So the RST is the kernel's own, and both ends know.
 */
static __always_inline bool mark_for_reset(struct __sk_buff *skb, const struct segment *segment)
{
	return change_flags(skb, segment, TCP_SYN, 0);
}

/* What becomes of the end of a handshake. */
static __always_inline enum verdict finish(const struct listener_rule *rule, const struct listener_load *load,
					   bool is_reserved, struct listener_stats *stats)
{
	enum verdict verdict = admit_ack(&rule->policy, load, is_reserved);

	if (!accept_queue_is_full(load) && verdict == VERDICT_ADMIT)
		return VERDICT_ADMIT;
	stats->acks_full++;
	arm(bpf_ktime_get_ns());
	stats->acks_dropped += verdict == VERDICT_DROP;
	stats->acks_reset += verdict == VERDICT_RESET;
	return rule->dry_run ? VERDICT_ADMIT : verdict;
}

/* A segment without SYN: does it complete a handshake that has nowhere to go, or one by a cookie of ours? */
static __always_inline enum action on_ack(struct __sk_buff *skb, const struct segment *segment)
{
	struct listener_load load = {};
	enum handshake handshake;
	struct found_rule found;

	if (!find_rule(skb, segment, &found) || !has_ack_stage(&found.rule.policy))
		return ACTION_PASS;
	handshake = find_handshake(skb, segment, &load);
	if (handshake == HANDSHAKE_NONE)
		return ACTION_PASS;
	switch (finish(&found.rule, &load, is_reserved_source(&found.rule.policy, found.index, &segment->source), found.stats)) {
	case VERDICT_RESET:
		mark_for_reset(skb, segment);
		return ACTION_PASS;
	case VERDICT_DROP:
		return ACTION_DROP;
	default:
		break;
	}
	if (handshake == HANDSHAKE_COOKIE && found.rule.policy.syn_when_full == VERDICT_COOKIE && take_cookie(skb, segment))
		found.stats->cookies_back++;
	return ACTION_PASS;
}

/*
 * Resets both ends: a clone of the FIN, as RST, goes on to the kernel, which destroys the connection; the FIN itself becomes
 * the client's RST. The clone comes by here again, and is no FIN any more.
 */
static __always_inline enum action reset_both(struct __sk_buff *skb, const struct segment *segment, struct net *net,
					      struct listener_stats *stats)
{
	if (!change_flags(skb, segment, TCP_RST, TCP_FIN))
		return ACTION_PASS;
	stats->fins_reset++;
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		return ACTION_PASS; /* the server's end at least */
	return send_reset(skb, HOOK_TC, segment, net) == SENT ? ACTION_SEND_BACK : ACTION_DROP;
}

/* A FIN: is its sender gone for good? */
static __always_inline enum action on_fin(struct __sk_buff *skb, const struct segment *segment)
{
	struct listener_policy *policy;
	struct found_rule found;
	struct net *net = NULL;
	struct fin fin = {};

	if (!find_rule(skb, segment, &found))
		return ACTION_PASS;
	policy = &found.rule.policy;
	if (policy->on_fin == FIN_KEEP && !is_any_asked)
		return ACTION_PASS;
	if (!find_connection(skb, segment, &fin, &net, &policy->on_fin) || policy->on_fin == FIN_KEEP)
		return ACTION_PASS;
	found.stats->fins++;
	if (admit_fin(policy, &fin) != VERDICT_RESET)
		return ACTION_PASS;
	if (found.rule.dry_run) {
		found.stats->fins_reset++;
		return ACTION_PASS;
	}
	return reset_both(skb, segment, net, found.stats);
}

static __always_inline enum action on_other(struct __sk_buff *skb, const struct segment *segment)
{
	__u8 flags = segment->flags & (TCP_SYN | TCP_RST | TCP_ACK | TCP_FIN);
	enum action action = ACTION_PASS;

	if (flags == (TCP_ACK | TCP_FIN))
		action = on_fin(skb, segment);
	if (action == ACTION_PASS && (flags & (TCP_SYN | TCP_RST | TCP_ACK)) == TCP_ACK && is_armed())
		action = on_ack(skb, segment);
	return action;
}

#endif
