/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The decision about a SYN when a policy limits the connections that wait for the server. The SYN
 * stage, the simulator and the agent's tests call it. Nothing here is under the lock of struct
 * service.
 */
#ifndef TIDEGATE_UNSERVED_H
#define TIDEGATE_UNSERVED_H

#include "standing.h"

enum {
	TOKENS_AT_ONCE_PER_S = 1000,	/* tokens of a millisecond may be spent at once, */
	TOKENS_SAVED = 4,		/* and these in addition */
};

/*
 * The rate of admission: the server's answers per second, and gain_per_s for each free place.
 * `room` is the number of free places, below 0 if too many wait.
 *
 * An admitted client arrives a round trip later. So the agent sets gain_per_s to correct a
 * difference within two round trips: sooner would overshoot. For near clients the rate acts like a
 * hard limit.
 */
static __always_inline struct rate admission_rate(const struct pace *pace, __s64 room)
{
	__s64 per_s = (__s64)pace->answers_per_s + room * pace->gain_per_s;
	__u64 at_once, places = room > 1 ? room : 1;
	struct rate rate = {};

	if (per_s <= 0)
		return rate;
	/* Only completed_ppm of the admitted SYNs become connections. */
	at_once = (__u64)per_s * ALL_PPM / (pace->completed_ppm ? pace->completed_ppm : ALL_PPM);
	rate.per_s = at_once < NS_PER_S ? at_once : NS_PER_S;
	/*
	 * Far clients that are admitted together arrive together, a round trip later. But a token
	 * is lost if no SYN comes in time.
	 */
	at_once = TOKENS_SAVED + rate.per_s / TOKENS_AT_ONCE_PER_S;
	if (at_once > places)
		at_once = places;
	rate.burst = at_once > 2 ? at_once : 2;
	return rate;
}

/* The token bucket as one SYN sees it. */
struct token {
	struct rate rate;
	__u64 schedule_ns;
	bool many_wait;			/* at least half of the limit */
};

/*
 * The schedule at today's rate. Tokens that were spent at a slower rate cost more time than they do
 * now.
 */
static __always_inline __u64 read_schedule(struct service *service, const struct rate *rate, __u64 now)
{
	__u64 schedule = *(volatile __u64 *)&service->schedule_ns, most;

	if (!rate->per_s)
		return schedule;
	most = clamped_schedule(rate, now, schedule);
	if (most < schedule)
		__sync_bool_compare_and_swap(&service->schedule_ns, schedule, most);
	return most;
}

/*
 * Fills `load`. When the agent finds the limit, a token decides: `unserved` is set below the limit
 * with a token, and to the limit without one.
 */
static __always_inline void read_waiting(const struct listener_policy *policy, struct listener_load *load, __u32 is_reserved,
				      struct service *service, const struct pace *pace, struct token *token, __u64 now)
{
	__u32 waiting = count_recent(service, pace), places;
	__u64 us = waiting ? read_sojourn_ns(service, now) / NS_PER_US : 0;
	bool has_one;

	load->unserved = waiting;
	load->unserved_limit = pace->limit;
	load->answers_per_s = pace->answers_per_s;
	load->sojourn_us = us < ~(__u32)0 ? us : ~(__u32)0;
	/* A limit that the policy names needs no token. */
	if (!is_limit_found(policy))
		return;
	places = pace->limit + (is_reserved ? policy->reserved_slots : 0);
	token->many_wait = waiting >= places / 2;
	token->rate = admission_rate(pace, (__s64)places - waiting);
	token->schedule_ns = read_schedule(service, &token->rate, now);
	has_one = token->rate.per_s && has_token(&token->rate, now, token->schedule_ns);
	if (has_one && waiting >= places)
		load->unserved = places - 1;
	else if (!has_one && waiting < places)
		load->unserved = places;
}

/* Spends the token of an admitted SYN. If another CPU was faster, two SYNs share one token. */
static __always_inline void spend_token(struct service *service, const struct token *token, __u64 now)
{
	if (token->rate.per_s)
		__sync_bool_compare_and_swap(&service->schedule_ns, token->schedule_ns, next_schedule(&token->rate, now, token->schedule_ns));
}

/*
 * A limit that the policy names always holds. A limit that the agent found holds only in a crowd.
 */
static __always_inline bool is_in_force(const struct listener_policy *policy, struct service *service, const struct pace *pace,
					const struct listener_load *load, __u64 now)
{
	if (!is_limit_found(policy))
		return true;
	return pace->limit && (is_refusing(service, pace, now) || is_crowd(service, pace, load, now));
}

/*
 * May this attempt start? The kernel decides alone while no limit is in force. The caller has
 * turned the epochs that are over. `is_by_server`: the server alone is the reason of a refusal.
 */
static __always_inline enum verdict decide_syn(const struct listener_policy *policy, struct listener_load *load, const struct attempt *attempt,
					       struct service *service, const struct pace *pace, __u64 now, bool *is_by_server)
{
	struct token token = {};
	enum verdict verdict;

	*is_by_server = false;
	if (!is_in_force(policy, service, pace, load, now))
		return keep_reserved(policy, load, attempt);
	read_waiting(policy, load, attempt->is_reserved, service, pace, &token, now);
	verdict = admit_syn(policy, load, attempt);
	if (verdict != VERDICT_ADMIT && !is_cookie(verdict)) {
		*is_by_server = is_refused_by_server_alone(policy, load, attempt->is_reserved);
		/*
		 * A client that opens many connections at once may find no token while few wait.
		 * That is no crowd.
		 */
		if (is_limit_found(policy) && (token.many_wait || accept_queue_is_full(load)))
			service->refused_ns = now;
		return verdict;
	}
	spend_token(service, &token, now);
	return verdict;
}

#endif
