// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * SYN stage of guarded listeners, at tc/tcx ingress and in XDP, from one body; ACK and FIN stage at tc/tcx ingress.
 *
 * Fails open: whatever is not a plain SYN to a guarded port of this host with a listener behind it, nor the end of a
 * handshake that finds its accept queue full, nor a FIN under rst-fin, goes to the kernel as it came, and a counter says why.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "verdict.h"
#include "segment.bpf.h"
#include "listener.bpf.h"
#include "hook.bpf.h"
#include "martian.bpf.h"
#include "answer.bpf.h"
#include "options.bpf.h"
#include "syn_ack.bpf.h"

enum {
	MAX_LISTENERS = 64,		/* also in crates/guard */
	MAX_KEYS = 2 * MAX_LISTENERS,	/* a dual-stack wildcard has two */
	MAX_OWN_ADDRESSES = 4096,	/* of the host; SYNs to more are passed */
	PULL_BYTES = 256,		/* headers to bring into the linear part of a paged socket buffer */
	ARMED_NS = 2000000000,		/* longest handshake that is looked out for after the last SYN */
	ARMED_STEP_NS = 1000000,
	MAX_RESERVED_SOURCES = 1024,	/* networks, of all listeners together; also in crates/guard */
	MAX_TOKEN_TRIES = 4,		/* then none is waited for: that many CPUs were faster */
};

/* Key of `listeners`: a destination. The wildcards are :: and ::ffff:0.0.0.0. */
struct listener_key {
	struct address address;
	__be16 port;
	__u16 zero;
};

/* What the agent sets for one listener. */
struct listener_rule {
	struct listener_policy policy;
	__u32 dry_run;			/* not 0: count what would have been done, and pass */
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

/*
 * Of one listener. SYNs: seen = admitted + dropped + reset + cookies + unsent. Segments that would complete a handshake are looked at
 * only while the accept queue may overflow: acks_full = acks_dropped + acks_reset + what the policy leaves to the kernel.
 */
struct listener_stats {
	__u64 seen;
	__u64 admitted;
	__u64 dropped;
	__u64 reset;
	__u64 cookies;			/* answered with SYN/ACK and a cookie */
	__u64 unsent;			/* to be answered, but the kernel refused to reshape the frame: passed or lost */
	__u64 over_budget;		/* of dropped: to be reset, but there have been too many */
	__u64 accept_full;		/* of seen: found the accept queue full */
	__u64 syn_full;			/* of seen: found the SYN queue full */
	__u64 acks_full;		/* would complete a handshake, and found no place in the accept queue */
	__u64 acks_dropped;
	__u64 acks_reset;		/* both ends: the client gets a RST, and the request socket goes */
	__u64 cookies_back;		/* handshakes by cookies of ours that became connections */
	__u64 fins;			/* of established connections, under rst-fin */
	__u64 fins_reset;		/* both ends */
};

_Static_assert(sizeof(struct listener_stats) == 15 * sizeof(__u64), "no padding: user space adds up raw words");

/* Every frame, and for those that were passed before a decision, why. */
struct path_stats {
	__u64 frames;
	__u64 not_ip;
	__u64 not_tcp;
	__u64 fragment;
	__u64 malformed;
	__u64 not_syn;			/* without SYN, or with RST or FIN */
	__u64 syn_ack;			/* to a client on this host */
	__u64 not_guarded;		/* SYN to another address or port */
	__u64 other_host;		/* SYN that is bridged or forwarded, not for this host */
	__u64 martian;			/* SYN between addresses that must not be answered */
	__u64 no_listener;		/* guarded, but nothing listens (any more) */
	__u64 known;			/* SYN of a connection or attempt that the kernel already has */
	__u64 unleased;			/* SYN to a guarded listener whose agent has not been heard of */
};

_Static_assert(sizeof(struct path_stats) == 13 * sizeof(__u64), "no padding: user space adds up raw words");

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
	__uint(max_entries, MAX_RESERVED_SOURCES);
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
 * Until when our decisions stand, ns of CLOCK_MONOTONIC; 0 is for ever. The agent renews it as long as it runs: one that is
 * stopped or hangs, and so can be asked nothing, leaves everything to the kernel.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");

/*
 * Until when segments with ACK are looked at, ns of bpf_ktime_get_ns(); 0 while no listener is near overflow, so that a
 * segment of a healthy server costs one read. Of all listeners together.
 */
__u64 armed_until_ns = 0;

/* ---- The guarded listener that a segment is for. ---- */

/*
 * A wildcard listener is found for any destination, also for one that the host forwards or that nobody has, so we look
 * among the host's own addresses. Not bpf_fib_lookup(): it says "not forwarded" of every destination on a host that
 * does not forward.
 */
static __always_inline bool is_local(const struct segment *segment)
{
	return bpf_map_lookup_elem(&own_addresses, &segment->destination);
}

/* What a segment's destination is to us. */
enum place {
	PLACE_GUARDED,
	PLACE_NOT_GUARDED,
	PLACE_MARTIAN,
	PLACE_OTHER_HOST,
	PLACE_UNLEASED,
};

static __always_inline bool is_leased(void)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&lease, &zero);

	return !until || !*until || bpf_ktime_get_ns() < *until;
}

/* Finds the guarded listener, the exact address before the wildcard; `index` is meant when there is one. */
static __always_inline enum place find_place(void *ctx, enum hook hook, const struct segment *segment, __u32 *index)
{
	struct listener_key key = { .port = segment->destination_port };
	bool is_wildcard = false;
	__u32 *found;

	key.address = segment->destination;
	found = bpf_map_lookup_elem(&listeners, &key);
	if (!found) {
		is_wildcard = true;
		if (segment->is_ipv6)
			__builtin_memset(&key.address, 0, sizeof(key.address));
		else
			key.address.word[3] = 0;
		found = bpf_map_lookup_elem(&listeners, &key);
	}
	if (!found)
		return PLACE_NOT_GUARDED;
	*index = *found;
	if (is_martian(segment, ifindex_of(ctx, hook)))
		return PLACE_MARTIAN;
	if (!is_for_host(ctx, hook, segment) || (is_wildcard && !is_local(segment)))
		return PLACE_OTHER_HOST;
	if (!is_leased())
		return PLACE_UNLEASED;
	return PLACE_GUARDED;
}

/* ---- The decision. ---- */

enum action {
	ACTION_PASS,
	ACTION_DROP,
	ACTION_SEND_BACK,
};

/* What became of an answer; what could not be written in full must not be passed on. */
static __always_inline enum action count_answer(enum sent sent, __u64 *answered, struct listener_stats *stats)
{
	if (sent == SENT) {
		++*answered;
		return ACTION_SEND_BACK;
	}
	stats->unsent++;
	return sent == SENT_NOT ? ACTION_PASS : ACTION_DROP;
}

/* Several CPUs may ask for the same token: the schedule moves once for each that gets one. */
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
	return false;
}

static __always_inline bool may_refuse(void)
{
	struct refusal_budget *left;
	struct rate rate;
	__u32 zero = 0;

	left = bpf_map_lookup_elem(&budget, &zero);
	if (!left)
		return false;
	rate = left->rate;
	return !rate.per_s || take_token(&rate, &left->schedule_ns, bpf_ktime_get_ns());
}

static __always_inline enum action refuse(void *ctx, enum hook hook, const struct segment *segment, struct net *net,
					  struct listener_stats *stats)
{
	if (may_refuse())
		return count_answer(send_reset(ctx, hook, segment, net), &stats->reset, stats);
	stats->over_budget++;
	stats->dropped++;
	return ACTION_DROP;
}

/* Has the ACK stage look at segments from now on for ARMED_NS. */
static __always_inline void arm(__u64 now)
{
	__u64 until = now + ARMED_NS;

	/* All CPUs share it: write only when it matters. */
	if (armed_until_ns + ARMED_STEP_NS < until)
		armed_until_ns = until;
}

/* The SYN queue may be what was full: the end of the handshake must be looked at all the same. */
static __always_inline enum action answer_with_cookie(void *ctx, enum hook hook, const struct segment *segment,
						      struct net *net, bool is_kernels, struct listener_stats *stats)
{
	arm(bpf_ktime_get_ns());
	return count_answer(send_syn_ack(ctx, hook, segment, net, is_kernels), &stats->cookies, stats);
}

static __always_inline enum verdict count(const struct listener_rule *rule, const struct listener_load *load,
					  enum verdict verdict, struct listener_stats *stats)
{
	stats->seen++;
	stats->accept_full += accept_queue_is_full(load);
	stats->syn_full += syn_queue_is_full(load);
	stats->admitted += verdict == VERDICT_ADMIT;
	stats->dropped += verdict == VERDICT_DROP;
	if (!rule->dry_run)
		return verdict;
	stats->reset += verdict == VERDICT_RESET;
	stats->cookies += verdict == VERDICT_COOKIE || verdict == VERDICT_KERNEL_COOKIE;
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
	attempt->now_ns = bpf_ktime_get_ns();
	attempt->schedule_ns = *(volatile __u64 *)schedule;
	verdict = admit_syn(policy, load, attempt);
	/* Whoever was slower than other CPUs is admitted without a token. */
	if (verdict == VERDICT_ADMIT && !attempt->is_reserved)
		take_token(&policy->rate, schedule, attempt->now_ns);
	return verdict;
}

static __always_inline bool is_reserved_source(const struct listener_policy *policy, __u32 index,
					       const struct segment *segment)
{
	struct reserved_key key = { .prefix_bits = 32 + 128, .index = index, .address = segment->source };

	return policy->reserved_slots && bpf_map_lookup_elem(&reserved, &key);
}

/* Whether anything is to be said about segments that end handshakes. */
static __always_inline bool has_ack_stage(const struct listener_policy *policy)
{
	return policy->ack_when_full != VERDICT_ADMIT || policy->reserved_slots;
}

/*
 * The rule of a listener, copied because the agent may change it under us, and its counters. False only if the index is none,
 * which the verifier cannot rule out.
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

static __always_inline enum action decide(void *ctx, enum hook hook, const struct segment *segment, __u32 index,
					  const struct listener *listener)
{
	struct listener_stats *stats;
	struct attempt attempt = {};
	struct listener_rule rule;
	enum verdict verdict;

	if (!read_rule(index, &rule, &stats))
		return ACTION_PASS;
	if (has_ack_stage(&rule.policy) && accept_queue_may_overflow(&rule.policy, &listener->load))
		arm(bpf_ktime_get_ns());
	attempt.is_reserved = is_reserved_source(&rule.policy, index, segment);
	if (rule.policy.full == FULL_CLASS)
		attempt.hash = hash_flow(segment);
	if (rule.policy.full == FULL_RATE)
		verdict = admit_by_rate(&rule.policy, &listener->load, index, &attempt);
	else
		verdict = admit_syn(&rule.policy, &listener->load, &attempt);
	switch (count(&rule, &listener->load, verdict, stats)) {
	case VERDICT_RESET:
		return refuse(ctx, hook, segment, listener->net, stats);
	case VERDICT_COOKIE:
	case VERDICT_KERNEL_COOKIE:
		return answer_with_cookie(ctx, hook, segment, listener->net, verdict == VERDICT_KERNEL_COOKIE, stats);
	case VERDICT_DROP:
		return ACTION_DROP;
	default:
		return ACTION_PASS;
	}
}

static __always_inline enum action on_syn(void *ctx, enum hook hook, const struct segment *segment,
					  struct path_stats *path)
{
	struct listener listener = {};
	__u32 index = 0;

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
	case PLACE_UNLEASED:
		path->unleased++;
		return ACTION_PASS;
	default:
		break;
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

/* A SYN that would make a listener create a request socket, as tcp_rcv_state_process() sees it. */
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

static __always_inline enum action on_frame(void *ctx, enum hook hook, enum parsed parsed,
					    const struct segment *segment)
{
	struct path_stats *path;
	__u32 zero = 0;

	path = bpf_map_lookup_elem(&path_stat, &zero);
	if (!path)
		return ACTION_PASS;
	path->frames++;
	switch (parsed) {
	case PARSED_TCP:
		return is_syn(segment, path) ? on_syn(ctx, hook, segment, path) : ACTION_PASS;
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

/* ---- Entry points. ---- */

static __noinline enum parsed parse_linear(struct __sk_buff *skb, struct segment *segment)
{
	struct frame frame = {
		.data = (void *)(long)skb->data,
		.data_end = (void *)(long)skb->data_end,
		.length = skb->len,
	};

	return parse_frame(&frame, segment);
}

/* Some drivers leave headers in pages. Pulling them is for the rare frame that cannot be read without. */
static __always_inline enum parsed parse_skb(struct __sk_buff *skb, struct segment *segment)
{
	enum parsed parsed = parse_linear(skb, segment);
	__u32 linear = skb->data_end - skb->data;

	if (parsed != PARSED_MALFORMED || linear >= skb->len || linear >= PULL_BYTES)
		return parsed;
	if (bpf_skb_pull_data(skb, skb->len < PULL_BYTES ? skb->len : PULL_BYTES))
		return parsed;
	__builtin_memset(segment, 0, sizeof(*segment));
	return parse_linear(skb, segment);
}

/* ---- The ACK and the FIN stage: tc only, since they send segments on to the kernel with other flags. ---- */

static __always_inline bool is_armed(void)
{
	if (!armed_until_ns)
		return false;
	if (bpf_ktime_get_ns() < armed_until_ns)
		return true;
	armed_until_ns = 0;
	return false;
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
	switch (finish(&found.rule, &load, is_reserved_source(&found.rule.policy, found.index, segment), found.stats)) {
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
	struct found_rule found;
	struct net *net = NULL;
	struct fin fin = {};

	if (!find_rule(skb, segment, &found) || found.rule.policy.on_fin == FIN_KEEP)
		return ACTION_PASS;
	if (!find_connection(skb, segment, &fin, &net))
		return ACTION_PASS;
	found.stats->fins++;
	if (admit_fin(&found.rule.policy, &fin) != VERDICT_RESET)
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

static __always_inline int tc_answer(struct __sk_buff *skb, enum action action)
{
	switch (action) {
	case ACTION_SEND_BACK:
		return bpf_redirect(skb->ifindex, 0);
	case ACTION_DROP:
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
}

/* All stages. */
SEC("tc")
int admit_tc(struct __sk_buff *skb)
{
	struct segment segment = {};
	enum parsed parsed = parse_skb(skb, &segment);
	enum action action = on_frame(skb, HOOK_TC, parsed, &segment);

	if (action == ACTION_PASS && parsed == PARSED_TCP)
		action = on_other(skb, &segment);
	return tc_answer(skb, action);
}

/* The later stages alone, for an interface whose SYN stage is in XDP. */
SEC("tc")
int finish_tc(struct __sk_buff *skb)
{
	struct segment segment = {};

	if (parse_skb(skb, &segment) != PARSED_TCP)
		return TC_ACT_UNSPEC;
	return tc_answer(skb, on_other(skb, &segment));
}

static __always_inline int admit_frame(struct xdp_md *xdp, enum hook hook)
{
	struct segment segment = {};
	struct frame frame = {
		.data = (void *)(long)xdp->data,
		.data_end = (void *)(long)xdp->data_end,
		.length = xdp->data_end - xdp->data,
	};
	enum parsed parsed = parse_frame(&frame, &segment);

	switch (on_frame(xdp, hook, parsed, &segment)) {
	case ACTION_SEND_BACK:
		return XDP_TX;
	case ACTION_DROP:
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}

SEC("xdp")
int admit_xdp(struct xdp_md *xdp)
{
	return admit_frame(xdp, HOOK_XDP);
}

SEC("xdp")
int admit_xdp_skb(struct xdp_md *xdp)
{
	return admit_frame(xdp, HOOK_XDP_GENERIC);
}

/* Never attached: the agent runs it (BPF_PROG_TEST_RUN) to see a listener as a SYN would, without a SYN. */
SEC("tc")
int ask_listener(struct __sk_buff *skb)
{
	struct listener_query *question;
	struct listener listener = {};
	struct segment segment = {};
	__u32 zero = 0;

	question = bpf_map_lookup_elem(&query, &zero);
	if (!question)
		return TC_ACT_UNSPEC;
	segment.destination = question->address;
	segment.destination_port = question->port;
	segment.is_ipv6 = question->is_ipv6;
	question->found = find_listener(skb, &segment, &listener);
	question->family = listener.family;
	question->load = listener.load;
	return TC_ACT_UNSPEC;
}

/* A case of the table of decisions; the tests run it here and on the host. */
struct verdict_case {
	struct listener_policy policy;
	struct listener_load load;
	struct attempt attempt;
	struct fin fin;
};

/* The answers of the SYN stage and, 8 and 16 bits up, of the ACK and the FIN stage. */
SEC("syscall")
int run_case(struct verdict_case *input)
{
	struct verdict_case copy = *input;

	return admit_syn(&copy.policy, &copy.load, &copy.attempt) |
	       admit_ack(&copy.policy, &copy.load, copy.attempt.is_reserved) << 8 |
	       admit_fin(&copy.policy, &copy.fin) << 16;
}

/* What we wrote is GPL-2.0 OR Apache-2.0; the kernel has no word for that, and the helpers want a GPL one. */
char LICENSE[] SEC("license") = "GPL";
