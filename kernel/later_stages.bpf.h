/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The ACK stage: may this handshake finish? The FIN stage: may the peer half-close? The FIN stage
 * is at tc only, because a segment can be cloned there. So are the guard's cookies, which the
 * kernel accepts from tc only.
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
#include "service.bpf.h"
#include "armed.bpf.h"
#include "answer.bpf.h"
#include "syn_ack.bpf.h"

enum {
	MAX_TAKEN = 1024,		/* a power of two; one batch has some tens of handshakes */
	BATCH_NS = 10000000,		/* its segments are microseconds apart, more if a hypervisor takes the CPU */
};

/* A handshake by cookie that was given to the kernel. */
struct taken {
	__u64 at_ns;
	__u32 hash;			/* of the flow and its cookie */
	__u32 zero;
};

/*
 * The last handshakes given to the kernel, so that none is given twice. GRO hands up batches
 * (netif_receive_skb_list_internal()). A whole batch passes here before the kernel receives its
 * first segment. So a request right behind the end of its handshake finds no connection yet.
 *
 * Given as a second end, the request would be lost: the kernel drops it when it finds the
 * connection (tcp_get_cookie_sock()). Left alone, the request finds the connection. Several ends of
 * a batch may meet the last place. If the kernel refused this one, the client gets a RST, as with
 * abort.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_TAKEN);
	__type(key, __u32);
	__type(value, struct taken);
} taken SEC(".maps");

/*
 * Changes flags in a frame, by RFC 1624, as replace_in_tcp() does in a socket buffer. A checksum
 * that the sender left to a device does not cover the flags.
 */
static __always_inline bool change_flags_xdp(struct xdp_md *xdp, const struct segment *segment, __be16 before, __be16 after)
{
	__u32 tcp = segment->l4_offset, sum = (__u16)~segment->checksum + (__u16)~before + after;
	__sum16 checksum = has_pseudo_sum(segment) ? segment->checksum : (__sum16)~fold(sum);

	return store(xdp, HOOK_XDP, tcp + __builtin_offsetof(struct tcp_header, checksum), &checksum, sizeof(checksum)) &&
	       store(xdp, HOOK_XDP, tcp + __builtin_offsetof(struct tcp_header, offset), &after, sizeof(after));
}

/* False if the buffer cannot be written; then it is unchanged. */
static __always_inline bool change_flags(void *ctx, enum hook hook, const struct segment *segment, __u8 set, __u8 clear)
{
	__be16 before, after;

	/* The 16-bit word whose second byte is the flags. */
	if (!load(ctx, hook, segment->l4_offset + __builtin_offsetof(struct tcp_header, offset), &before, sizeof(before)))
		return false;
	after = (before | bpf_htons(set)) & ~bpf_htons(clear);
	return hook == HOOK_TC ? replace_in_tcp(ctx, segment, __builtin_offsetof(struct tcp_header, offset), before, after, sizeof(after)) : change_flags_xdp(ctx, segment, before, after);
}

struct found_rule {
	struct listener_rule rule;
	struct listener_stats *stats;
	__u32 index;
};

/* Finds the rule of the guarded listener that a segment is for. */
static __always_inline bool find_rule(void *ctx, enum hook hook, const struct segment *segment, struct found_rule *found)
{
	found->index = 0;
	return find_place(ctx, hook, segment, &found->index) == PLACE_GUARDED &&
	       read_rule(found->index, &found->rule, &found->stats);
}

/*
 * Sets SYN on the segment that would complete a handshake. So the kernel itself sends the RST, and
 * both ends know.
 *
 * With a request socket the kernel forgets the request (tcp_check_req(), `embryonic_reset`, as with
 * tcp_abort_on_overflow=1). With a cookie the listener answers (tcp_rcv_state_process(),
 * TCP_LISTEN).
 */
static __always_inline bool mark_for_reset(void *ctx, enum hook hook, const struct segment *segment)
{
	return change_flags(ctx, hook, segment, TCP_SYN, 0);
}

/* Decides about the end of a handshake, and counts it. */
static __always_inline enum verdict finish(const struct segment *segment, const struct listener_rule *rule,
					   const struct listener_load *load, bool is_reserved,
					   struct listener_stats *stats)
{
	enum verdict verdict = admit_ack(&rule->policy, load, is_reserved);
	__u64 now;

	if (!accept_queue_is_full(load) && verdict == VERDICT_ADMIT)
		return VERDICT_ADMIT;
	now = bpf_ktime_get_ns();
	if ((!rule->dry_run && !may_act(now)) || is_left_to_kernel(rule, now))
		return VERDICT_ADMIT;
	stats->acks_full++;
	stats->acks_implied += segment->payload_length || segment->flags & TCP_FIN;
	arm(now);
	stats->acks_dropped += verdict == VERDICT_DROP;
	if (!rule->dry_run)
		return verdict;
	stats->acks_reset += verdict == VERDICT_RESET;
	return VERDICT_ADMIT;
}

static __always_inline void end_by_cookie(struct __sk_buff *skb, const struct segment *segment,
					  const struct found_rule *found)
{
	__u32 hash, place;
	struct taken *last;
	__u64 now;

	if (!may_answer(&found->rule.policy, VERDICT_COOKIE))
		return;
	now = bpf_ktime_get_ns();
	if (!is_leased(now))
		return;
	hash = hash_flow(segment) ^ segment->ack;
	place = hash & (MAX_TAKEN - 1);
	last = bpf_map_lookup_elem(&taken, &place);
	if (!last || (last->hash == hash && now - last->at_ns < BATCH_NS))
		return;
	if (!take_cookie(skb, segment))
		return;
	found->stats->cookies_back++;
	last->hash = hash;
	last->at_ns = now;
}

/* A segment without SYN: does it complete a handshake that finds no place? */
static __always_inline enum action on_ack(void *ctx, enum hook hook, const struct segment *segment)
{
	struct listener_load load = {};
	enum handshake handshake;
	enum source_kind kind;
	struct found_rule found;

	if (!find_rule(ctx, hook, segment, &found) || !has_ack_stage(&found.rule.policy))
		return ACTION_PASS;
	handshake = find_handshake(ctx, segment, &load);
	if (handshake == HANDSHAKE_NONE)
		return ACTION_PASS;
	kind = source_kind(&found.rule, found.index, &segment->source);
	switch (kind == SOURCE_EXEMPT ? VERDICT_ADMIT : finish(segment, &found.rule, &load, kind == SOURCE_RESERVED, found.stats)) {
	case VERDICT_RESET:
		if (mark_for_reset(ctx, hook, segment))
			found.stats->acks_reset++;
		else
			found.stats->unsent++;
		return ACTION_PASS;
	case VERDICT_DROP:
		return ACTION_DROP;
	default:
		break;
	}
	if (hook == HOOK_TC && handshake == HANDSHAKE_COOKIE)
		end_by_cookie(ctx, segment, &found);
	return ACTION_PASS;
}

/* Not static: see on_syn_tc(). */

/*
 * Takes a cookie at tc when the ACK stage is in XDP. That stage has let the segment pass, and has
 * counted it.
 */
__noinline int on_cookie_tc(struct __sk_buff *skb, const struct segment *segment)
{
	struct listener_load load = {};
	struct found_rule found;

	if (segment && find_rule(skb, HOOK_TC, segment, &found) &&
	    find_handshake(skb, segment, &load) == HANDSHAKE_COOKIE)
		end_by_cookie(skb, segment, &found);
	return ACTION_PASS;
}

__noinline int on_ack_tc(struct __sk_buff *skb, const struct segment *segment)
{
	return segment ? on_ack(skb, HOOK_TC, segment) : ACTION_PASS;
}

/* For native and generic XDP. */
__noinline int on_ack_xdp(struct xdp_md *xdp, const struct segment *segment)
{
	return segment ? on_ack(xdp, HOOK_XDP, segment) : ACTION_PASS;
}

static __always_inline bool may_end_handshake(__u8 flags)
{
	return (flags & (TCP_SYN | TCP_RST | TCP_ACK)) == TCP_ACK;
}

/*
 * True when the kernel would accept the checksum of a segment without data. A local or virtual
 * sender leaves the checksum to a device.
 */
static __noinline int has_right_checksum(struct __sk_buff *skb, const struct segment *segment)
{
	struct workspace *work = workspace_for(segment, 0);

	if (checksum_is_partial(skb, HOOK_TC, segment))
		return true;
	return work && load_tcp(skb, HOOK_TC, segment, &work->tcp) &&
	       fold(sum_pseudo_header(segment, segment->tcp_length) + sum_words(work->tcp.byte, MAX_TCP_HEADER_BYTES)) == 0xffff;
}

/*
 * Resets both ends. A clone of the FIN, as RST, goes to the kernel, which destroys the connection.
 * The FIN itself becomes the client's RST. The clone passes here again, but it is no FIN any more.
 */
static __always_inline enum action reset_both(struct __sk_buff *skb, const struct segment *segment, struct listener_stats *stats)
{
	if (!change_flags(skb, HOOK_TC, segment, TCP_RST, TCP_FIN))
		return ACTION_PASS;
	stats->fins_reset++;
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		return ACTION_PASS; /* resets at least the server's end */
	return send_reset(skb, HOOK_TC, segment) == SENT ? ACTION_SEND_BACK : ACTION_DROP;
}

/* A FIN: is its sender gone for good? */
__noinline int on_fin_tc(struct __sk_buff *skb, const struct segment *segment)
{
	struct listener_policy *policy;
	struct found_rule found;
	struct fin fin = {};

	if (!segment || !find_rule(skb, HOOK_TC, segment, &found))
		return ACTION_PASS;
	policy = &found.rule.policy;
	if (policy->on_fin == FIN_KEEP && !is_any_asked)
		return ACTION_PASS;
	if (source_kind(&found.rule, found.index, &segment->source) == SOURCE_EXEMPT)
		return ACTION_PASS;
	if (!find_connection(skb, segment, &fin, &policy->on_fin) || policy->on_fin == FIN_KEEP)
		return ACTION_PASS;
	found.stats->fins++;
	if (admit_fin(policy, &fin) != VERDICT_RESET || !has_right_checksum(skb, segment))
		return ACTION_PASS;
	if (found.rule.dry_run) {
		found.stats->fins_reset++;
		return ACTION_PASS;
	}
	if (!may_act(bpf_ktime_get_ns()))
		return ACTION_PASS;
	return reset_both(skb, segment, found.stats);
}

static __always_inline bool is_fin(const struct segment *segment)
{
	return (segment->flags & (TCP_SYN | TCP_RST | TCP_ACK | TCP_FIN)) == (TCP_ACK | TCP_FIN);
}

/* `is_beside`: the ACK stage is in XDP, so only the guard's cookies are left to do. */
static __always_inline enum action on_other(struct __sk_buff *skb, const struct segment *segment, bool is_beside)
{
	enum action action = is_fin(segment) ? on_fin_tc(skb, segment) : ACTION_PASS;

	if (action != ACTION_PASS || !may_end_handshake(segment->flags))
		return action;
	if (is_beside)
		return is_armed_for_cookies() ? on_cookie_tc(skb, segment) : ACTION_PASS;
	return is_armed() ? on_ack_tc(skb, segment) : ACTION_PASS;
}

#endif
