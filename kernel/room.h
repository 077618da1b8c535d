/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The room of an accept queue, from what the last SYN saw of it. It saves the lookup of a socket
 * for each segment with ACK while the queue may overflow. A segment that skips the lookup takes a
 * place, because it may end a handshake.
 *
 * No map and no clock: crates/kernel compiles it for the host. The includer provides __u32, __u64,
 * bool and __always_inline.
 */
#ifndef TIDEGATE_ROOM_H
#define TIDEGATE_ROOM_H

enum {
	/*
	 * Places that no segment takes without a lookup. They stand for segments of two CPUs that
	 * have passed and are not in the queue yet. A lookup does not see these, and does not count
	 * what it lets pass.
	 *
	 * Frames go on to the kernel by 16 (VETH_XDP_BATCH), or by eight after GRO
	 * (net.core.gro_normal_batch). If RPS moves them to another CPU they arrive later.
	 */
	ROOM_KEPT = 32,
	/*
	 * Layout of a word from its low end: places, flags, time of the look. The time is in units
	 * of 2^20 ns.
	 */
	ROOM_PLACES_MASK = 0xffff,
	ROOM_IS_OF_SEVERAL = 1 << 16,	/* two listeners share the rule, so no segment's listener is known */
	ROOM_HAS_COOKIES = 1 << 17,	/* handshakes may end by the guard's cookies: tc must look */
	ROOM_TIME_SHIFT = 32,
	ROOM_UNIT_SHIFT = 20,
	/*
	 * Ages in units. The clock goes by ticks, so a step may be 10 ms (HZ=100). A word ages
	 * because a listener may get connections by ways that the guard does not see.
	 */
	ROOM_IS_NEW = 4,
	ROOM_IS_RECENT = 1000,
};

_Static_assert((__u64)ROOM_HAS_COOKIES < 1ULL << ROOM_TIME_SHIFT && ROOM_IS_OF_SEVERAL > ROOM_PLACES_MASK, "places, flags and time are apart");

/* The room of the listeners of one rule. */
struct room {
	__u64 socket;			/* the listener of the last SYN */
	__u64 word;
};

static __always_inline __u64 room_time(__u64 now)
{
	return (now >> ROOM_UNIT_SHIFT) << ROOM_TIME_SHIFT;
}

/* Units since the word was written. */
static __always_inline __u32 room_age(__u64 word, __u64 now)
{
	return (now >> ROOM_UNIT_SHIFT) - (word >> ROOM_TIME_SHIFT);
}

/*
 * The word after a SYN that saw `places`. `is_same`: the SYN before it had the same listener.
 *
 * Two listeners may share a rule (SO_REUSEPORT, or two addresses under a wildcard). Then the word
 * trusts none until one listener got all SYNs of a second.
 */
static __always_inline __u64 next_room(__u64 word, bool is_same, bool has_cookies, __u64 places, __u64 now)
{
	bool is_recent = room_age(word, now) < ROOM_IS_RECENT;

	if (is_recent && !is_same)
		return room_time(now) | ROOM_IS_OF_SEVERAL;
	if (is_recent && word & ROOM_IS_OF_SEVERAL)
		return word;
	return room_time(now) | (has_cookies ? ROOM_HAS_COOKIES : 0) | (places < ROOM_PLACES_MASK ? places : ROOM_PLACES_MASK);
}

/* True when a segment may take a place without a lookup. */
static __always_inline bool has_room(__u64 word, bool is_tc, __u64 now)
{
	return (word & ROOM_PLACES_MASK) > ROOM_KEPT && !(word & ROOM_IS_OF_SEVERAL) && !(is_tc && word & ROOM_HAS_COOKIES) &&
	       room_age(word, now) < ROOM_IS_NEW;
}

#endif
