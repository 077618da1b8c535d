/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Who was admitted and has not ended his handshake yet: by number, in slots of time, as likely as those were who came before; and, where clients are far away,
 * by when they will be there, in a virtual queue. Nothing of it is under the lock of struct service.
 */
#ifndef TIDEGATE_EXPECTED_H
#define TIDEGATE_EXPECTED_H

#include "service.h"

/* ---- A virtual queue of those who are far away. ---- */

/*
 * More are under way than may meet, and who were let in at once are there at once, a round trip later. So those who are let in fill a queue that drains at the rate at which they
 * may be let in, and for a round trip it holds as many as the server will have waiting when this one is there. What has been there for longer shows in those who wait.
 */
static __always_inline void fill_virtual_queue(struct service *service, const struct pace *pace)
{
	if (pace->drain_ns)
		__sync_fetch_and_add(&service->drained_ns, pace->drain_ns * pace->completed_ppm / ALL_PPM);
}

/* It is not empty before now, and not full for longer than a round trip, whatever was thought of how fast it drains. */
static __always_inline void settle_virtual_queue(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 drained = *(volatile __u64 *)&service->drained_ns, last = now + pace->handshake_ns;

	if (!pace->drain_ns || (now <= drained && drained <= last))
		return;
	/* If another CPU was first it has settled it, too, but for what came meanwhile. */
	__sync_bool_compare_and_swap(&service->drained_ns, drained, drained < now ? now : last);
}

static __always_inline __u32 count_virtual_queue(const struct service *service, const struct pace *pace, __u64 now)
{
	__u64 drained = *(volatile __u64 *)&service->drained_ns;

	return pace->drain_ns && drained > now ? (drained - now) / pace->drain_ns : 0;
}

/* ---- SYNs that were admitted. ---- */

static __always_inline __u64 slot_of(const struct pace *pace, __u64 now)
{
	return now >> shift_of(pace);
}

/*
 * Of a slot, in one word, so that a CPU sees them together:
 *
 *	63..45 number | 44..40 log2 of its length in ns | 39..20 SYNs that were admitted | 19..0 of these, those that are not back as connections
 *
 * Numbers come again, of the shortest slots (131 us) after 69 s: a place that nobody has used since then may count for one slot more.
 */
static __always_inline __u64 *place_of(struct service *service, __u64 slot)
{
	return &service->slots[slot & (SLOTS - 1)];
}

static __always_inline __u64 mask_slot(__u64 word)
{
	return word & ((1ULL << SLOT_BITS) - 1);
}

/* A slot in which nobody was admitted. */
static __always_inline __u64 empty_slot(const struct pace *pace, __u64 slot)
{
	return (slot << SHIFT_BITS | shift_of(pace)) << 2 * SLOT_BITS;
}

static __always_inline bool is_of_slot(const struct pace *pace, __u64 word, __u64 slot)
{
	return !((word ^ empty_slot(pace, slot)) >> 2 * SLOT_BITS);
}

static __always_inline bool has_our_length(const struct pace *pace, __u64 word)
{
	return !(((word ^ empty_slot(pace, 0)) >> 2 * SLOT_BITS) & SHIFT_MASK);
}

/*
 * Whoever comes first in a slot of time puts it where the one before the last three was, whose connections have come by now, or never will. Those of a slot of another
 * length may be under way still, and count nowhere.
 */
static __always_inline void begin_slot(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 slot = slot_of(pace, now), *place = place_of(service, slot), before = *(volatile __u64 *)place;

	if (is_of_slot(pace, before, slot) || !__sync_bool_compare_and_swap(place, before, empty_slot(pace, slot)) || !has_our_length(pace, before))
		return;
	__sync_fetch_and_add(&service->expected, mask_slot(before >> SLOT_BITS));
	__sync_fetch_and_add(&service->never_came, mask_slot(before));
}

/* After begin_slot(). CPUs that are at odds about a place lose one or two of them: a look, and not a sum. */
static __always_inline void expect(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 slot = slot_of(pace, now), *place = place_of(service, slot), before = *(volatile __u64 *)place;

	if (is_of_slot(pace, before, slot) && mask_slot(before >> SLOT_BITS) < MOST_IN_SLOT)
		__sync_fetch_and_add(place, 1ULL << SLOT_BITS | 1);
	fill_virtual_queue(service, pace);
}

static __always_inline bool take_expected(struct service *service, const struct pace *pace, __u64 slot)
{
	__u64 *place = place_of(service, slot), before = *(volatile __u64 *)place;

	return is_of_slot(pace, before, slot) && mask_slot(before) && __sync_bool_compare_and_swap(place, before, before - 1);
}

/*
 * One is back, after so many us; 0 if that is not known, as after a SYN cookie of the kernel's. It is one of the slot in which its SYN came, or of the one before, as the
 * SYN/ACK left a little later; if not known, it may be one of the slot after it, and else never: whose slot is gone, as slots had another length when his SYN came, would be
 * taken for somebody who is under way still, that one for another, and so on, and one more would wait for the server as long as the crowd lasts.
 */
static __always_inline void arrive(struct service *service, const struct pace *pace, __u32 handshake_us, __u64 now)
{
	__u64 handshake_ns = handshake_us ? (__u64)handshake_us * NS_PER_US : pace->handshake_ns;
	__u64 slot = slot_of(pace, now - handshake_ns);

	if (!take_expected(service, pace, slot) && !take_expected(service, pace, slot - 1) && !handshake_us)
		take_expected(service, pace, slot + 1);
}

/* A slot's word; 0 if its place is another's. */
static __always_inline __u64 read_slot(struct service *service, const struct pace *pace, __u64 slot)
{
	__u64 word = *(volatile __u64 *)place_of(service, slot);

	return is_of_slot(pace, word, slot) ? word : 0;
}

/*
 * Handshakes under way that will end: of this slot and the one before all that are not back, but for the usual share of those that never will be.
 * Of both together, as one may have been taken for the other's. Where that share is not known yet, as a flood has just begun, those of the slot before
 * count less and less as this one goes by.
 */
static __always_inline __u32 count_expected(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 slot = slot_of(pace, now), length = 1ULL << shift_of(pace), left = length - (now & (length - 1));
	__u64 word = read_slot(service, pace, slot), before = read_slot(service, pace, slot - 1);
	__u64 admitted = mask_slot(word >> SLOT_BITS) + mask_slot(before >> SLOT_BITS);
	__u64 out = mask_slot(word) + mask_slot(before), most = mask_slot(word) + (mask_slot(before) * left >> shift_of(pace));
	__u64 never = admitted * (ALL_PPM - pace->completed_ppm) / ALL_PPM;
	__u64 expected = out > never ? out - never : 0;

	return expected < most ? expected : most;
}

/* Of those of all the server's listeners, no more can be this one's, but for those by a cookie of ours, which are in no queue: few, once the SYN queue has room again. */
static __always_inline __u32 count_promised(const struct listener_load *load, __u32 expected)
{
	__u32 most = load->syn_qlen + NAPI_WEIGHT;

	return expected < most ? expected : most;
}

#endif
