/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The SYN stage: may this attempt start? It reads the listener, asks verdict.h, counts, and acts.
 */
#ifndef TIDEGATE_SYN_STAGE_BPF_H
#define TIDEGATE_SYN_STAGE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "verdict.h"
#include "segment.bpf.h"
#include "listener.bpf.h"
#include "hook.bpf.h"
#include "rules.bpf.h"
#include "armed.bpf.h"
#include "room.bpf.h"
#include "answer.bpf.h"
#include "repeat.bpf.h"
#include "again.bpf.h"
#include "syn_ack.bpf.h"
#include "service.bpf.h"

enum {
	MAX_TOKEN_TRIES = 4,
};

/* Counts an answer. A frame that is half rewritten must not pass. */
static __always_inline enum action count_answer(enum sent sent, __u64 *answered, struct listener_stats *stats)
{
	if (sent == SENT) {
		++*answered;
		return ACTION_SEND_BACK;
	}
	stats->unsent++;
	return sent == SENT_NOT ? ACTION_PASS : ACTION_DROP;
}

/*
 * Several CPUs may ask for the same token. The schedule moves once for each CPU that gets one. A
 * CPU that lost each try gets one all the same: there were tokens, and a race must not drop a
 * client.
 */
static __always_inline bool take_token(const struct rate *rate, __u64 *schedule_ns, __u64 now)
{
	__u64 schedule;
	int i;

	for (i = 0; i < MAX_TOKEN_TRIES; i++) {
		schedule = *(volatile __u64 *)schedule_ns;
		if (!has_token(rate, now, schedule))
			return false;
		if (__sync_bool_compare_and_swap(schedule_ns, schedule, next_schedule(rate, now, schedule)))
			return true;
	}
	return true;
}

static __always_inline bool may_answer_now(__u64 now)
{
	struct refusal_budget *left;
	struct rate rate;
	__u32 zero = 0;

	left = bpf_map_lookup_elem(&budget, &zero);
	if (!left)
		return false;
	rate = left->rate;
	return !rate.per_s || take_token(&rate, &left->schedule_ns, now);
}

/* Drops a SYN that would get one answer too many. */
static __always_inline enum action drop_over_budget(struct listener_stats *stats)
{
	stats->over_budget++;
	stats->dropped++;
	return ACTION_DROP;
}

static __always_inline enum action refuse(void *ctx, enum hook hook, const struct segment *segment, __u64 now,
					  struct listener_stats *stats)
{
	if (may_answer_now(now))
		return count_answer(send_reset(ctx, hook, segment), &stats->reset, stats);
	return drop_over_budget(stats);
}

/*
 * Sends a cookie, and arms the ACK stage for as long as it is valid. A full SYN queue alone does
 * not arm it. Unarmed, the kernel would answer the end of the handshake with RST.
 */
static __always_inline enum action answer_with_cookie(void *ctx, enum hook hook, const struct segment *segment, __u64 now,
						      bool is_kernels, struct listener_stats *stats)
{
	if (!may_answer_now(now))
		return drop_over_budget(stats);
	arm_for_cookie(now, is_kernels);
	return count_answer(send_syn_ack(ctx, hook, segment, now, is_kernels), &stats->cookies, stats);
}

static __always_inline enum verdict count(const struct listener_rule *rule, const struct listener_load *load,
					  enum verdict verdict, bool is_by_server, struct listener_stats *stats)
{
	stats->seen++;
	stats->accept_full += accept_queue_is_full(load);
	stats->syn_full += syn_queue_is_full(load);
	stats->server_full += is_by_server;
	stats->admitted += verdict == VERDICT_ADMIT;
	stats->dropped += verdict == VERDICT_DROP;
	if (!rule->dry_run)
		return verdict;
	stats->reset += verdict == VERDICT_RESET;
	stats->cookies += is_cookie(verdict);
	return VERDICT_ADMIT;
}

static __always_inline enum verdict admit_by_rate(const struct listener_policy *policy,
						  const struct listener_load *load, __u32 index,
						  struct attempt *attempt)
{
	__u64 *schedule = bpf_map_lookup_elem(&schedules, &index);
	enum verdict verdict;

	if (!schedule || !policy->rate.per_s)
		return VERDICT_ADMIT;
	attempt->schedule_ns = *(volatile __u64 *)schedule;
	verdict = admit_syn(policy, load, attempt);
	if (verdict != VERDICT_ADMIT || attempt->is_reserved || take_token(&policy->rate, schedule, attempt->now_ns))
		return verdict;
	/* Another CPU took the last token. */
	return policy->syn_when_full;
}

/* True when the decision about every SYN needs the time. */
static __always_inline bool goes_by_time(const struct listener_policy *policy)
{
	return policy->trigger != TRIGGER_QUEUE || policy->full == FULL_RATE;
}

/*
 * The time, or 0 when this SYN needs it only if refused. The clock costs as much as a map lookup.
 */
static __always_inline __u64 time_to_decide(const struct listener_policy *policy, bool is_near_full)
{
	return is_near_full || goes_by_time(policy) ? bpf_ktime_get_ns() : 0;
}

/*
 * Decides about a SYN, and acts. The lease is checked only before a refusal: an admitted SYN goes
 * to the kernel either way.
 */
static __always_inline enum action decide(void *ctx, enum hook hook, const struct segment *segment, __u32 index,
					  struct listener *listener)
{
	bool is_near_full;
	__u32 decided;
	struct attempt attempt = {};
	struct listener_stats *stats;
	struct listener_rule rule;
	enum source_kind kind;
	enum verdict verdict;
	__u64 now;

	if (!read_rule(index, &rule, &stats))
		return ACTION_PASS;
	kind = source_kind(&rule, index, &segment->source);
	is_near_full = has_ack_stage(&rule.policy) && accept_queue_may_overflow(&rule.policy, &listener->load);
	now = time_to_decide(&rule.policy, is_near_full);
	if (is_near_full)
		arm(now);
	if (may_be_armed())
		note_room(index, listener, &rule.policy);
	attempt.now_ns = now;
	attempt.is_behind_time_wait = listener->is_behind_time_wait;
	attempt.is_reserved = kind == SOURCE_RESERVED;
	if (rule.policy.full == FULL_CLASS)
		attempt.hash = hash_flow(segment);
	if (kind == SOURCE_EXEMPT)
		decided = VERDICT_ADMIT;
	else if (rule.policy.full == FULL_RATE)
		decided = admit_by_rate(&rule.policy, &listener->load, index, &attempt);
	else if (rule.policy.trigger != TRIGGER_QUEUE)
		decided = decide_before_server(&rule, &listener->load, &attempt, now);
	else
		decided = admit_syn(&rule.policy, &listener->load, &attempt);
	verdict = (enum verdict)(decided & ~BY_SERVER);
	if (rule.dry_run)
		stats->first += is_first_syn(segment);
	if (verdict != VERDICT_ADMIT) {
		if (!now)
			now = bpf_ktime_get_ns();
		if (!rule.dry_run && !may_act(now))
			return ACTION_PASS;
	}
	switch (count(&rule, &listener->load, verdict, decided & BY_SERVER, stats)) {
	case VERDICT_RESET:
		return refuse(ctx, hook, segment, now, stats);
	case VERDICT_COOKIE:
	case VERDICT_KERNEL_COOKIE:
		return answer_with_cookie(ctx, hook, segment, now, verdict == VERDICT_KERNEL_COOKIE, stats);
	case VERDICT_DROP:
		return ACTION_DROP;
	default:
		if (is_handed_up_at_once(hook))
			note_passed(segment, ifindex_of(ctx, hook));
		return ACTION_PASS;
	}
}

static __always_inline enum action on_syn(void *ctx, enum hook hook, const struct segment *segment)
{
	struct path_stats *path = path_counters();
	struct listener listener = {};
	__u32 index = 0;

	if (!path)
		return ACTION_PASS;
	switch (find_place(ctx, hook, segment, &index)) {
	case PLACE_NOT_GUARDED:
		path->not_guarded++;
		return ACTION_PASS;
	case PLACE_MARTIAN:
		path->martian++;
		return ACTION_PASS;
	case PLACE_OTHER_HOST:
		path->other_host++;
		return ACTION_PASS;
	default:
		break;
	}
	if (is_handed_up_at_once(hook) && was_passed(segment, ifindex_of(ctx, hook))) {
		path->again++;
		return ACTION_PASS;
	}
	switch (find_listener(ctx, segment, &listener)) {
	case FOUND_LISTENER:
		return decide(ctx, hook, segment, index, &listener);
	case FOUND_NOTHING:
		path->no_listener++;
		return ACTION_PASS;
	default:
		path->known++;
		return ACTION_PASS;
	}
}

/*
 * Not static, so that the verifier walks each function once. Otherwise it would for each way to
 * parse a frame. The segment is never NULL, but the verifier wants the check.
 */

__noinline int on_syn_tc(struct __sk_buff *skb, const struct segment *segment)
{
	return segment ? on_syn(skb, HOOK_TC, segment) : ACTION_PASS;
}

__noinline int on_syn_xdp(struct xdp_md *xdp, const struct segment *segment)
{
	return segment ? on_syn(xdp, HOOK_XDP, segment) : ACTION_PASS;
}

__noinline int on_syn_xdp_generic(struct xdp_md *xdp, const struct segment *segment)
{
	return segment ? on_syn(xdp, HOOK_XDP_GENERIC, segment) : ACTION_PASS;
}

static __always_inline enum action on_syn_at(void *ctx, enum hook hook, const struct segment *segment)
{
	switch (hook) {
	case HOOK_TC:
		return on_syn_tc(ctx, segment);
	case HOOK_XDP:
		return on_syn_xdp(ctx, segment);
	default:
		return on_syn_xdp_generic(ctx, segment);
	}
}

/*
 * True for a SYN that would make a listener create a request socket, as in tcp_rcv_state_process().
 */
static __always_inline bool is_syn(const struct segment *segment, struct path_stats *path)
{
	__u8 flags = segment->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);

	if (flags == TCP_SYN)
		return true;
	if (flags == (TCP_SYN | TCP_ACK))
		path->syn_ack++;
	else
		path->not_syn++;
	return false;
}

/* Counts a TCP frame without SYN, as on_frame() does. */
static __always_inline void count_not_syn(struct path_stats *path)
{
	path->frames++;
	path->not_syn++;
}

static __always_inline enum action on_frame(void *ctx, enum hook hook, enum parsed parsed,
					    const struct segment *segment)
{
	struct path_stats *path = path_counters();

	if (!path)
		return ACTION_PASS;
	path->frames++;
	switch (parsed) {
	case PARSED_TCP:
		return is_syn(segment, path) ? on_syn_at(ctx, hook, segment) : ACTION_PASS;
	case PARSED_NOT_IP:
		path->not_ip++;
		return ACTION_PASS;
	case PARSED_NOT_TCP:
		path->not_tcp++;
		return ACTION_PASS;
	case PARSED_FRAGMENT:
		path->fragment++;
		return ACTION_PASS;
	default:
		path->malformed++;
		return ACTION_PASS;
	}
}

#endif
