/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Attempts that come back: a client's TCP repeats the SYN that got no answer, and some repeat one that got a RST, with the same sequence number. What was
 * refused is remembered by a hash of its flow, whose seed is secret, so that nobody can choose whom to push out of his place. No map and no clock:
 * crates/pacer compiles it for the host. The includer has the types of <linux/types.h>.
 */
#ifndef TIDEGATE_RETURNED_H
#define TIDEGATE_RETURNED_H

enum {
	REFUSED_SHIFT = 17,		/* log2 of how many are remembered; where two have one place, the later, or the one that was deferred */
	/*
	 * How often one is left unanswered for what he cost once. Clients wait for 1 s, and then for 2 s (RFC 6298, section 2; tcp(7)): who comes
	 * first in a burst of two seconds is back before it is over, and once more in the gap after it.
	 */
	MOST_DEFERRALS = 2,
};

/* What became of a SYN. */
enum outcome {
	OUTCOME_ADMITTED,
	OUTCOME_REFUSED,
	OUTCOME_DEFERRED,		/* left unanswered, since a burst may be over when its client tries again */
};

/* A word for each place: the sequence number, what of the hash the place does not say, how often the attempt was deferred, and when; 0 is none. */
#define REFUSED_HASH_MASK ((1U << (32 - REFUSED_SHIFT)) - 1)
#define REFUSED_ATTEMPT_MASK ((1ULL << (64 - REFUSED_SHIFT)) - 1)
#define REFUSED_DEFERRALS_SHIFT 48
#define REFUSED_DEFERRALS_MASK 3
#define REFUSED_IS_SET (1ULL << 63)
/* When it was deferred, units of 2^30 ns, modulo 8192. */
#define REFUSED_TIME_SHIFT 50
#define REFUSED_TIME_MASK 0x1fff
#define REFUSED_UNIT_SHIFT 30
/* One who was deferred is back within 3 s, or has given up. */
#define DEFERRED_FOR 5

static __always_inline __u32 refused_place(__u32 hash)
{
	return hash >> (32 - REFUSED_SHIFT);
}

static __always_inline __u64 refused_time(__u64 now)
{
	return now >> REFUSED_UNIT_SHIFT & REFUSED_TIME_MASK;
}

static __always_inline __u64 refused_word(__u32 hash, __u32 seq, __u64 deferrals)
{
	return REFUSED_IS_SET | deferrals << REFUSED_DEFERRALS_SHIFT | (__u64)(hash & REFUSED_HASH_MASK) << 32 | seq;
}

static __always_inline bool is_back(__u64 word, __u32 hash, __u32 seq)
{
	return (word & (REFUSED_IS_SET | REFUSED_ATTEMPT_MASK)) == refused_word(hash, seq, 0);
}

/* How often this attempt was left unanswered before, by the word of its place. */
static __always_inline __u32 count_deferrals(__u64 word, __u32 hash, __u32 seq)
{
	return is_back(word, hash, seq) ? word >> REFUSED_DEFERRALS_SHIFT & REFUSED_DEFERRALS_MASK : 0;
}

/* One that was deferred is so once more for nothing: what he keeps others waiting for was paid for. */
static __always_inline bool may_defer_again(__u64 word, __u32 hash, __u32 seq)
{
	__u32 deferrals = count_deferrals(word, hash, seq);

	return deferrals > 0 && deferrals < MOST_DEFERRALS;
}

/* Whether the place is kept for somebody who was deferred a moment ago, as what he cost is to be given back. */
static __always_inline bool is_kept(__u64 word, __u64 now)
{
	__u64 age = (refused_time(now) - (word >> REFUSED_TIME_SHIFT)) & REFUSED_TIME_MASK;

	return word >> REFUSED_DEFERRALS_SHIFT & REFUSED_DEFERRALS_MASK && age < DEFERRED_FOR;
}

/* The word that the place should have now: the same, if there is nothing to write. */
static __always_inline __u64 next_word(__u64 word, __u32 hash, __u32 seq, enum outcome outcome, __u64 now)
{
	__u32 deferrals = count_deferrals(word, hash, seq);

	switch (outcome) {
	case OUTCOME_ADMITTED:
		/* Once: one that was let in may repeat its SYN, too. */
		return is_back(word, hash, seq) ? 0 : word;
	case OUTCOME_DEFERRED:
		return refused_word(hash, seq, deferrals < REFUSED_DEFERRALS_MASK ? deferrals + 1 : deferrals) |
		       refused_time(now) << REFUSED_TIME_SHIFT;
	default:
		return is_kept(word, now) && !is_back(word, hash, seq) ? word : refused_word(hash, seq, 0);
	}
}

#endif
