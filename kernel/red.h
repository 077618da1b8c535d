/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Random Early Detection [FJ93] in fixed point, and which packets REDFavor [RF] takes, pushes out
 * and sends first. No map, no clock, no kernel pointer, no random numbers of its own: each arrival
 * is handed one. The qdisc includes this file, and crates/kernel compiles it for the host; with the
 * same packets, times and random numbers both decide the same.
 *
 * Queues are measured in one unit throughout, packets or bytes. Averages have 32 bits before and 32
 * behind the point, weights and probabilities 32 behind it: a weight of 0.002 is off by one part in
 * 20 million and 2^-9 not at all, and an average stops 2^-33 / weight (60 billionths of a packet)
 * from where it would end.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_RED_H
#define TIDEGATE_RED_H

#define RED_ONE (1ull << 32)			/* a weight or probability of 1 */
#define RED_MOST 0xffffffffull			/* that a count holds */
#define REDFAVOR_ONE_BYTE (1ull << 16)		/* of credit */

enum {
	RED_POWER_BITS = 32,			/* of an exponent */
};

/* What becomes of a packet that arrives. */
enum red_action {
	RED_TAKE = 0,
	RED_DROP_EARLY = 1,			/* by chance: unforced in [FJ93] */
	RED_DROP_FORCED = 2,			/* the average is at the maximum, or with gentle at twice of it */
};

/* Fixed for a queue. */
struct red_params {
	__u32 min;				/* threshold: no drop below this average */
	__u32 max;				/* above min, below 2^31 */
	__u32 unit;				/* 1: packets are counted; more: bytes are, and this is a mean packet */
	__u32 is_gentle;			/* [Floyd 2000]: from max to twice max the probability goes on up to 1 */
	__u32 waits;				/* ns-2's wait_: no drop within 1/p of the last one */
	__u32 spares_one;			/* as ns-2 and ns-3: no drop while one waits at most; in bytes, while none does */
	__u64 max_probability;			/* as the average reaches max; up to RED_ONE */
	__u64 weight;				/* of the queue's length in the average; above 0, up to RED_ONE */
	__u64 slot_ns;				/* a mean packet's transmission: of an idle queue, one is taken to arrive in each; above 0 */
};

/* All 0 at first. */
struct red_state {
	__u64 average;				/* 32 bits behind the point */
	__u64 idle_since_ns;			/* of an empty queue: the average is right for this time */
	__u32 since_drop;			/* 1 + what arrived since the last drop, in packets or bytes; 0: the last one was not at stake */
};

/*
 * value * fraction, to the nearest; fraction up to RED_ONE. In two halves, as there are no 128 bits
 * in BPF.
 */
static inline __u64 red_multiply(__u64 value, __u64 fraction)
{
	return (value >> 32) * fraction + (((value & RED_MOST) * fraction + RED_ONE / 2) >> 32);
}

/* base^exponent by repeated squaring; base up to RED_ONE. */
static inline __u64 red_power(__u64 base, __u32 exponent)
{
	__u64 power = RED_ONE;
	int bit;

	for (bit = 0; bit < RED_POWER_BITS && exponent; bit++) {
		if (exponent & 1)
			power = red_multiply(power, base);
		base = red_multiply(base, base);
		exponent >>= 1;
	}
	return power;
}

/*
 * An empty queue: as if as many packets had found it so as could have been sent meanwhile. What is
 * less than one packet's time stays for the next arrival: this one may be dropped, too, and then
 * the queue is idle on.
 */
static inline void red_decay(const struct red_params *params, struct red_state *state, __u64 now_ns)
{
	__u64 idle_ns = now_ns > state->idle_since_ns ? now_ns - state->idle_since_ns : 0;
	__u64 slots = idle_ns / params->slot_ns;

	state->idle_since_ns += slots * params->slot_ns;
	if (slots > RED_MOST)
		slots = RED_MOST;
	state->average = red_multiply(state->average, red_power(RED_ONE - params->weight, slots));
}

/* Before each decision: the queue's length is `qlen`, without the packet that arrives. */
static inline void red_update(const struct red_params *params, struct red_state *state, __u32 qlen, __u64 now_ns)
{
	__u64 length = (__u64)qlen << 32;

	if (!qlen)
		red_decay(params, state, now_ns);
	else if (length > state->average)
		state->average += red_multiply(length - state->average, params->weight);
	else
		state->average -= red_multiply(state->average - length, params->weight);
}

/* A packet has left, or was dropped, and no other is there. */
static inline void red_left_empty(struct red_state *state, __u64 now_ns)
{
	state->idle_since_ns = now_ns;
}

static inline bool red_is_below_min(const struct red_params *params, const struct red_state *state)
{
	return state->average < (__u64)params->min << 32;
}

/*
 * ns-2's condition for looking at the average at all (queue/red.cc, REDQueue::enque(): v_ave >=
 * th_min && qlen > 1), which ns-3 has, too. Not in
 * [FJ93]: there a packet may be dropped that finds nothing before it, as the average falls slowly when a burst is over.
 */
static inline bool red_spares(const struct red_params *params, __u32 qlen)
{
	return params->spares_one && qlen <= 1;
}

/* Whether the packet that arrives may be dropped by the average. */
static inline bool red_is_at_stake(const struct red_params *params, const struct red_state *state, __u32 qlen)
{
	return !red_is_below_min(params, state) && !red_spares(params, qlen);
}

/* p_b of [FJ93], by the average alone. */
static inline __u64 red_base_probability(const struct red_params *params, __u64 average)
{
	__u64 min = (__u64)params->min << 32;
	__u64 max = (__u64)params->max << 32;

	if (average < min)
		return 0;
	if (average < max)
		return red_multiply(params->max_probability, (average - min) / (params->max - params->min));
	if (!params->is_gentle || average >= 2 * max)
		return RED_ONE;
	return params->max_probability + red_multiply(RED_ONE - params->max_probability, (average - max) / params->max);
}

/*
 * p_a of [FJ93]: base / (1 - count * base), so that the gaps between drops are uniform and not
 * geometric. In bytes count and size are taken in mean packets, as in ns-2. With `waits` base /
 * (2 - count * base), once count * base is 1.
 */
static inline __u64 red_probability(const struct red_params *params, __u64 base, __u32 count, __u32 size)
{
	__u64 certain_at = params->waits ? 2 * RED_ONE : RED_ONE;
	__u64 passed, probability;

	if (base >= RED_ONE)
		return RED_ONE;
	passed = base * count / params->unit;
	if (passed >= certain_at)
		return RED_ONE;
	if (params->waits && passed < RED_ONE)
		return 0;
	probability = (base << 32) / (certain_at - passed);
	if (probability >= RED_ONE)
		return RED_ONE;
	probability = probability * size / params->unit;
	return probability < RED_ONE ? probability : RED_ONE;
}

/*
 * -1, 0, 1 ... packets in figure 2 of [FJ93]: the first above min is not counted, and the one after
 * a drop is.
 */
static inline void red_count_arrival(struct red_state *state, __u32 size)
{
	__u64 since_drop = state->since_drop ? (__u64)state->since_drop + size : 1;

	state->since_drop = since_drop < RED_MOST ? since_drop : RED_MOST;
}

/* After red_update(), with the same `qlen`. `random` is uniform over all 32 bits. */
static inline enum red_action red_decide(const struct red_params *params, struct red_state *state, __u32 qlen, __u32 bytes,
					 __u32 random)
{
	__u32 size = params->unit > 1 ? bytes : 1;
	__u64 base;

	if (!red_is_at_stake(params, state, qlen)) {
		state->since_drop = 0;
		return RED_TAKE;
	}
	base = red_base_probability(params, state->average);
	if (base < RED_ONE) {
		red_count_arrival(state, size);
		if (random >= red_probability(params, base, state->since_drop - 1, size))
			return RED_TAKE;
	}
	state->since_drop = 1;
	return base < RED_ONE ? RED_DROP_EARLY : RED_DROP_FORCED;
}

/*
 * REDFavor's guard against floods of packets that it would protect; not of [RF]. What protection
 * costs the others, in bytes that overtake them and in bytes that are pushed out, is paid from a
 * credit that grows by a share of all bytes sent. What cannot be paid is not done.
 */
struct redfavor_guard {
	__u32 places;				/* of the queue, for protected ones; in packets or bytes as for RED. 0: no guard */
	__u32 share;				/* of the bytes sent, in units of 2^-16; up to 2^16 */
	__u64 burst;				/* that may be saved up, in bytes; below 2^47 */
};

/* Begins with the guard's burst; 16 bits behind the point. */
struct redfavor_state {
	__u64 credit;
};

/* What becomes of a protected packet. */
enum redfavor_action {
	REDFAVOR_TAKE = 0,			/* behind all protected packets, ahead of all others */
	REDFAVOR_PUSH_OUT = 1,			/* drop the last standard packet, and ask again whether there is room */
	REDFAVOR_DROP = 2,			/* only protected packets in the queue */
	REDFAVOR_DROP_SHARE = 3,		/* protected packets have had their share */
};

static inline void redfavor_begin(const struct redfavor_guard *guard, struct redfavor_state *state)
{
	state->credit = guard->burst * REDFAVOR_ONE_BYTE;
}

static inline bool redfavor_pay(const struct redfavor_guard *guard, struct redfavor_state *state, __u32 bytes)
{
	__u64 price = bytes * REDFAVOR_ONE_BYTE;

	if (!guard->places)
		return 1;
	if (state->credit < price)
		return 0;
	state->credit -= price;
	return 1;
}

static inline void redfavor_earn(const struct redfavor_guard *guard, struct redfavor_state *state, __u32 bytes)
{
	__u64 most = guard->burst * REDFAVOR_ONE_BYTE;

	state->credit += (__u64)bytes * guard->share;
	if (state->credit > most)
		state->credit = most;
}

/*
 * Before RED is asked about a protected packet: of these there is so much (`qlen`), and it would
 * add `size`. A flood so does not even move the average.
 */
static inline bool redfavor_has_place(const struct redfavor_guard *guard, __u32 qlen, __u32 size)
{
	return !guard->places || (__u64)qlen + size <= guard->places;
}

/*
 * Algorithm 1 of [RF] for a protected packet. `needs_room`: the queue is full, or, at the first
 * time of asking, RED would drop it. `last_standard_bytes` is of the last standard packet, 0 for
 * none.
 */
static inline enum redfavor_action redfavor_make_room(const struct redfavor_guard *guard, struct redfavor_state *state, bool needs_room,
						      __u32 last_standard_bytes)
{
	if (!needs_room)
		return REDFAVOR_TAKE;
	if (!last_standard_bytes)
		return REDFAVOR_DROP;
	return redfavor_pay(guard, state, last_standard_bytes) ? REDFAVOR_PUSH_OUT : REDFAVOR_DROP_SHARE;
}

/*
 * Whether a protected packet goes next. Bytes are of the first of each kind, 0 for none; there is
 * one at least.
 */
static inline bool redfavor_sends_protected(const struct redfavor_guard *guard, struct redfavor_state *state, __u32 protected_bytes,
					   __u32 standard_bytes)
{
	bool is_protected = protected_bytes && (!standard_bytes || redfavor_pay(guard, state, protected_bytes));

	redfavor_earn(guard, state, is_protected ? protected_bytes : standard_bytes);
	return is_protected;
}

#endif
