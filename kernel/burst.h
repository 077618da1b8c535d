/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A burst is queued or left unanswered where it is soon over: what that costs those who come after it, and what there is to spend. Nothing of it is under the
 * lock of struct service.
 */
#ifndef TIDEGATE_BURST_H
#define TIDEGATE_BURST_H

#include "service.h"

/* Time in which nobody waited, but for what is a crowd's of a time that still lasts; it may be that of one that ends just now twice. */
static __always_inline __u64 read_idle_ns(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 since = *(volatile __u64 *)&service->idle_since_ns, idle = *(volatile __u64 *)&service->idle_ns;

	return since && now > since ? idle + (now - since) - count_crowded_ns(service, pace, since, now) : idle;
}

/*
 * A burst that the server will have answered soon is better served than refused, and a crowd is not. A crowd leaves a server no time in which nobody
 * waits, and a burst comes after some: that time is what may be spent on those who come beyond what the server answers meanwhile, each for as long as he
 * keeps the others waiting.
 */
static __always_inline bool spend(struct service *service, const struct pace *pace, __u64 answers, __u64 now)
{
	__u64 idle = read_idle_ns(service, pace, now), spent = *(volatile __u64 *)&service->spent_ns, price = answers * pace->answer_ns;

	if (!price || price > pace->kept_ns)
		return false;
	/* If another CPU was first it has done so, too, but for its own price. */
	if ((__s64)(idle - spent) > (__s64)pace->kept_ns)
		__sync_bool_compare_and_swap(&service->spent_ns, spent, idle - pace->kept_ns);
	/* Paid, and given back if it was too much: a CPU that another one comes before must not go away empty where there is enough for both. */
	spent = __sync_fetch_and_add(&service->spent_ns, price);
	if ((__s64)(idle - spent) >= (__s64)(price + pace->reserve_ns))
		return true;
	__sync_fetch_and_sub(&service->spent_ns, price);
	return false;
}

/* How many would be past a limit that was found and what is reserved, with one more; 0 before any other, past which no burst goes. */
static __always_inline __u32 count_past(const struct listener_load *load, bool is_found, __u32 reserved)
{
	return is_found ? load->unserved + 1 - load->unserved_limit - reserved : 0;
}

/* Of the idle time, what may still be spent; below 0 if that is less than nothing. */
static __always_inline __s64 count_left_ns(struct service *service, const struct pace *pace, __u64 now)
{
	__s64 left = read_idle_ns(service, pace, now) - *(volatile __u64 *)&service->spent_ns, kept = pace->kept_ns;

	return (left < kept ? left : kept) - (__s64)pace->reserve_ns;
}

/* Of a queue that stays, the part that is paid for again each patience_ns: an eighth, and one at least. */
#define PAID_AGAIN_SHIFT 3

/* One is refused, as there is nothing to spend. What a crowd has cost that was over long before is kept, and the quiet between the two pays. */
static __always_inline void note_crowd(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 since = *(volatile __u64 *)&service->idle_since_ns;

	if (now > crowd_ends_ns(service, pace)) {
		if (since)
			__sync_fetch_and_add(&service->spent_ns, count_crowded_ns(service, pace, since, now));
		service->crowd_began_ns = now;
	}
	service->crowded_ns = now;
}

/*
 * One who would be so many past the limit. He takes the place of one who was answered, unless more wait than before: only what the queue grows by is
 * paid for, and a part of it again while it stays, or none would ever end. When nothing is left, nobody who is new is past the limit for free either: then it is a crowd. What
 * is there of those who were owed a place he pays for, too.
 */
static __always_inline bool may_queue(struct service *service, const struct pace *pace, __u64 past, __u64 now)
{
	__u64 paid = *(volatile __u64 *)&service->paid;
	/* Below 0 if that was just now, on another CPU. */
	__s64 age = now - *(volatile __u64 *)&service->paid_ns, patience = pace->patience_ns;

	if (age > patience) {
		service->paid_ns = now;
		service->paid = paid = age > 2 * patience ? 0 : paid - ((paid + (1 << PAID_AGAIN_SHIFT) - 1) >> PAID_AGAIN_SHIFT);
	}
	if (past <= paid) {
		if (count_left_ns(service, pace, now) >= (__s64)pace->answer_ns)
			return true;
	} else if (past * pace->answer_ns <= pace->patience_ns && spend(service, pace, past - paid, now)) {
		/* Who waits in a queue does so for one patience_ns. */
		service->paid = past;
		return true;
	}
	note_crowd(service, pace, now);
	return false;
}

/* Of limits, so many past the limit: the timers of many clients go off together. Not a time, as the agent finds the limit by halving it. */
#define OWED_LIMITS 3

/*
 * One who was left unanswered has come back: what he keeps others waiting for was paid for then. With no better chance than one who is new, the same clients
 * would be left unanswered again and again in a crowd, and be told after seconds. Nor may they be in the way of a reserved source.
 */
static __always_inline bool has_owed_place(const struct pace *pace, __u32 past)
{
	return past <= OWED_LIMITS * (__u64)pace->limit;
}

/* SYNs come in batches, from an interface that moderates its interrupts: a batch may be ahead of its time. */
#define DEFERRED_AHEAD_SHIFT 6

/* Who comes back takes the places of those who are new, so that more of these are left unanswered than the server answers, but not all at once. */
#define DEFERRED_PER_ANSWER_SHIFT 2

/*
 * One who finds no place in the accept queue, but may be left unanswered. Who is comes back after patience_ns and later: so no more are left so for the first
 * time than four times what the server answers meanwhile, or they would all come back at once.
 */
static __always_inline bool defer(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 next = *(volatile __u64 *)&service->deferred_ns, ahead = pace->patience_ns >> DEFERRED_AHEAD_SHIFT;
	__u64 earliest = now > ahead ? now - ahead : 0, turn = pace->answer_ns >> DEFERRED_PER_ANSWER_SHIFT;

	if (next > now)
		return false;
	/* If another CPU was first it has done so, too, but for its own turn. */
	if (next < earliest)
		__sync_bool_compare_and_swap(&service->deferred_ns, next, earliest);
	/* A turn for which there is nothing to spend costs nobody anything. */
	if (__sync_fetch_and_add(&service->deferred_ns, turn) <= now)
		return spend(service, pace, 1, now);
	__sync_fetch_and_sub(&service->deferred_ns, turn);
	return false;
}

/* Of the price of one who comes back and gets in, the part that is given back in a crowd. */
#define REPAID_IN_CROWD_SHIFT 2

/*
 * One who was not refused but left unanswered, as the accept queue had no place for a burst, has come back and got in: what he cost can be spent on the
 * next one. In a crowd a quarter of it: if it were all, another one would be left unanswered in his stead, and so for as long as it lasts; and if it were nothing,
 * bursts of ten seconds would find fewer waiting when they end. Who never gets in is not paid back for either.
 */
static __always_inline void repay(struct service *service, const struct pace *pace, __u64 now)
{
	bool is_crowd = now <= crowd_ends_ns(service, pace);

	__sync_fetch_and_sub(&service->spent_ns, is_crowd ? pace->answer_ns >> REPAID_IN_CROWD_SHIFT : pace->answer_ns);
}

#endif
