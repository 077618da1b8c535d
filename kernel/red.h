/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Random Early Detection [FJ93] in fixed point, and the decisions of REDFavor [RF]: take, push out,
 * send first. No map, no clock, no kernel pointer: the caller gives a random number for each
 * arrival. The qdisc includes this file, and crates/kernel compiles it for the host. With the same
 * packets, times and random numbers both decide the same.
 *
 * A queue is measured in one unit, packets or bytes. Averages have 32 bits before the point and 32
 * behind it. Weights and probabilities have 32 bits behind it. A weight of 0.002 is off by one part
 * in 20 million; 2^-9 is exact. An average stops 2^-33 / weight from its end, 60 billionths of a
 * packet.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_RED_H
#define TIDEGATE_RED_H

#define RED_ONE (1ull << 32)			/* a weight or probability of 1 */
#define RED_MOST 0xffffffffull			/* largest value of a count */
#define REDFAVOR_ONE_BYTE (1ull << 16)		/* one byte of credit */

enum {
	RED_POWER_BITS = 32,			/* bits of an exponent */
};

/* The fate of an arriving packet. */
enum red_action {
	RED_TAKE = 0,
	RED_DROP_EARLY = 1,			/* by chance: unforced in [FJ93] */
	RED_DROP_FORCED = 2,			/* the average is at max, or with is_gentle at twice max */
};

/* Settings of a queue, fixed. */
struct red_params {
	__u32 min;				/* threshold: no drop below this average */
	__u32 max;				/* above min, below 2^31 */
	__u32 unit;				/* 1: counts packets; more: counts bytes, and this is a mean packet */
	__u32 is_gentle;			/* [Floyd 2000]: the probability rises from max to twice max, up to 1 */
	__u32 waits;				/* ns-2's wait_: no drop within 1/p of the last one */
	__u32 spares_one;			/* as ns-2 and ns-3: no drop while at most one waits; in bytes, none */
	__u64 max_probability;			/* at an average of max; up to RED_ONE */
	__u64 weight;				/* of the queue's length in the average; above 0, up to RED_ONE */
	__u64 slot_ns;				/* to send a mean packet; an idle queue gets one in each; above 0 */
};

/* State of a queue. It starts as all 0. */
struct red_state {
	__u64 average;				/* 32 bits behind the point */
	__u64 idle_since_ns;			/* of an empty queue: the average is right for this time */
	__u32 since_drop;			/* 1 + packets or bytes since the last drop; 0: not at stake */
};

/*
 * value * fraction, rounded to the nearest; fraction up to RED_ONE. It uses two halves, because BPF
 * has no 128 bits.
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
 * Lets the average fall for an empty queue. It falls as if packets had arrived as fast as they can
 * be sent. The rest of a packet's time stays for the next arrival. This one may be dropped, and
 * then the queue stays idle.
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

/*
 * Updates the average before each decision. `qlen` is the queue's length without the arriving
 * packet.
 */
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

/* The last packet has left, or was dropped. */
static inline void red_left_empty(struct red_state *state, __u64 now_ns)
{
	state->idle_since_ns = now_ns;
}

static inline bool red_is_below_min(const struct red_params *params, const struct red_state *state)
{
	return state->average < (__u64)params->min << 32;
}

/*
 * True when ns-2 would not look at the average (queue/red.cc, REDQueue::enque(): v_ave >= th_min &&
 * qlen > 1). The same holds for ns-3. Differs: [FJ93] has no such rule. The average falls slowly
 * after a burst, so there a packet may be dropped that finds an empty queue.
 */
static inline bool red_spares(const struct red_params *params, __u32 qlen)
{
	return params->spares_one && qlen <= 1;
}

/* True when the average may drop the arriving packet. */
static inline bool red_is_at_stake(const struct red_params *params, const struct red_state *state, __u32 qlen)
{
	return !red_is_below_min(params, state) && !red_spares(params, qlen);
}

/* p_b of [FJ93], from the average alone. */
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
 * p_a of [FJ93]: base / (1 - count * base). It makes the gaps between drops uniform, not geometric.
 * In bytes, count and size are in mean packets, as in ns-2. With `waits` it is base / (2 - count *
 * base), and 0 until count * base is 1.
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
 * Counts -1, 0, 1 ... packets, as figure 2 of [FJ93]. The first above min does not count; the one
 * after a drop does.
 */
static inline void red_count_arrival(struct red_state *state, __u32 size)
{
	__u64 since_drop = state->since_drop ? (__u64)state->since_drop + size : 1;

	state->since_drop = since_drop < RED_MOST ? since_drop : RED_MOST;
}

/*
 * Decides about an arriving packet, after red_update() with the same `qlen`. `random` is uniform
 * over all 32 bits.
 */
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
 * Limits floods of packets that REDFavor would protect; not of [RF]. Protection costs the other
 * packets bytes: those that overtake them, and those that are pushed out. It pays from a credit
 * that grows by a share of all bytes sent. Without credit there is no protection.
 */
struct redfavor_guard {
	__u32 places;				/* most protected packets in the queue, in RED's unit; 0: no guard */
	__u32 share;				/* part of the bytes sent that becomes credit, in 2^-16; up to 2^16 */
	__u64 burst;				/* most credit, in bytes; below 2^47 */
};

/* The credit, with 16 bits behind the point. It begins with the guard's burst. */
struct redfavor_state {
	__u64 credit;
};

/* The fate of a protected packet. */
enum redfavor_action {
	REDFAVOR_TAKE = 0,			/* behind all protected packets, ahead of all others */
	REDFAVOR_PUSH_OUT = 1,			/* drop the last standard packet, and ask again */
	REDFAVOR_DROP = 2,			/* only protected packets in the queue */
	REDFAVOR_DROP_SHARE = 3,		/* protected packets have used their share */
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
 * True when a protected packet may ask RED. `qlen` of them wait, and it adds `size`. So a flood
 * does not even move the average.
 */
static inline bool redfavor_has_place(const struct redfavor_guard *guard, __u32 qlen, __u32 size)
{
	return !guard->places || (__u64)qlen + size <= guard->places;
}

/*
 * Algorithm 1 of [RF] for a protected packet. `needs_room`: the queue is full. On the first call,
 * also: RED would drop it. `last_standard_bytes` is the size of the last standard packet, 0: none.
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
 * True when a protected packet goes next. The sizes are those of the first packet of each kind, 0:
 * none. At least one is there.
 */
static inline bool redfavor_sends_protected(const struct redfavor_guard *guard, struct redfavor_state *state, __u32 protected_bytes,
					   __u32 standard_bytes)
{
	bool is_protected = protected_bytes && (!standard_bytes || redfavor_pay(guard, state, protected_bytes));

	redfavor_earn(guard, state, is_protected ? protected_bytes : standard_bytes);
	return is_protected;
}

#endif
