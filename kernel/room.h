/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Whether the accept queue has room, by what the last SYN has seen of it. Each segment that is not
 * looked up takes one of its places, as it may end a handshake. So while it may overflow not every
 * segment with ACK has its socket looked up. No map and no clock: crates/kernel compiles it for the
 * host. The includer provides __u32, __u64, bool and __always_inline.
 */
#ifndef TIDEGATE_ROOM_H
#define TIDEGATE_ROOM_H

enum {
	/*
	 * Places that are never taken on trust: of two CPUs, those that have come by and are not in
	 * the queue yet. Frames go on to the kernel by 16 (VETH_XDP_BATCH; eight after GRO,
	 * net.core.gro_normal_batch), and later where RPS takes them to another CPU. A look at the
	 * socket does not see them either, nor is what it lets pass counted here.
	 */
	ROOM_KEPT = 32,
	/*
	 * Of one word, from its low end: places, what else is known, and when that was, in units of
	 * 2^20 ns.
	 */
	ROOM_PLACES_MASK = 0xffff,
	ROOM_IS_OF_SEVERAL = 1 << 16,	/* listeners, and nobody knows which of them a segment is for */
	ROOM_HAS_COOKIES = 1 << 17,	/* handshakes may end by a cookie of ours, for which tc looks at them */
	ROOM_TIME_SHIFT = 32,
	ROOM_UNIT_SHIFT = 20,
	/*
	 * Units, of a clock that goes by ticks, so that some may be 10 ms (HZ=100). A listener may
	 * have connections from where we see none.
	 */
	ROOM_IS_NEW = 4,
	ROOM_IS_RECENT = 1000,
};

_Static_assert((__u64)ROOM_HAS_COOKIES < 1ULL << ROOM_TIME_SHIFT && ROOM_IS_OF_SEVERAL > ROOM_PLACES_MASK, "places, flags and time are apart");

/* Of the listeners of one rule. */
struct room {
	__u64 socket;			/* which the last SYN was for */
	__u64 word;
};

static __always_inline __u64 room_time(__u64 now)
{
	return (now >> ROOM_UNIT_SHIFT) << ROOM_TIME_SHIFT;
}

/* Units since then. */
static __always_inline __u32 room_age(__u64 word, __u64 now)
{
	return (now >> ROOM_UNIT_SHIFT) - (word >> ROOM_TIME_SHIFT);
}

/*
 * The word after a SYN that has seen so many places, and whether the SYN before it was for the same
 * socket. With two listeners behind one rule (SO_REUSEPORT, or two addresses under a wildcard)
 * there is none to trust until one has had all SYNs of a second.
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

/* Whether a segment may take a place unseen. */
static __always_inline bool has_room(__u64 word, bool is_tc, __u64 now)
{
	return (word & ROOM_PLACES_MASK) > ROOM_KEPT && !(word & ROOM_IS_OF_SEVERAL) && !(is_tc && word & ROOM_HAS_COOKIES) &&
	       room_age(word, now) < ROOM_IS_NEW;
}

#endif
