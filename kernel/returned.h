/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Attempts that come back: a client's TCP repeats the SYN that got no answer, and some repeat one that got a RST, with the same sequence number. What was
 * refused is remembered by a hash of its flow, whose seed is secret, so that nobody can choose whom to push out of his place. No map and no clock:
 * crates/pacer compiles it for the host. The includer has the types of <linux/types.h>.
 */
#ifndef TIDEGATE_RETURNED_H
#define TIDEGATE_RETURNED_H

enum {
	/*
	 * log2 of the rows of two that are remembered, in 8 MiB: the later ones, or those that were deferred. In a burst as many are deferred as come in some seconds,
	 * and who is forgotten pays again, and has no place that is owed to him: of 100,000 that were deferred so are one in 180, by chance, where single words would make it
	 * one in twenty.
	 */
	REFUSED_SHIFT = 19,
};

/* Beside each other, so that a look is mostly at one cache line. */
struct refused_row {
	__u64 words[2];
};

/*
 * How long one is left unanswered for what he cost once, however often he comes back. Clients send their SYN again after 1, 3 and 7 s (RFC 6298, section 2), those
 * of Linux since 6.5 after 1, 2, 3, 4, 5 and 7 s (net.ipv4.tcp_syn_linear_timeouts), so that they are told after 7 s, while most still wait, unless they are paid for again.
 */
#define DEFERRED_FOR_NS 5500000000ULL

/* What became of a SYN. */
enum outcome {
	OUTCOME_ADMITTED,
	OUTCOME_REFUSED,
	OUTCOME_DEFERRED,		/* left unanswered, since a burst may be over when its client tries again */
};

/* Of a word: the sequence number, what of the hash the row does not say, whether the attempt was deferred, and when first; 0 is none. */
#define REFUSED_HASH_MASK ((1U << (32 - REFUSED_SHIFT)) - 1)
#define REFUSED_ATTEMPT_MASK ((1ULL << (64 - REFUSED_SHIFT)) - 1)
#define REFUSED_IS_DEFERRED (1ULL << 49)
#define REFUSED_IS_SET (1ULL << 63)
/* Units of 2^27 ns, 0.13 s, modulo 8192. */
#define REFUSED_TIME_SHIFT 50
#define REFUSED_TIME_MASK 0x1fff
#define REFUSED_UNIT_SHIFT 27

_Static_assert(!(REFUSED_ATTEMPT_MASK & REFUSED_IS_DEFERRED), "hash, flag, time and the set bit are apart");
_Static_assert(DEFERRED_FOR_NS >> REFUSED_UNIT_SHIFT < REFUSED_TIME_MASK / 2, "its time does not go round while one is deferred");

static __always_inline __u32 refused_row_of(__u32 hash)
{
	return hash >> (32 - REFUSED_SHIFT);
}

static __always_inline __u64 refused_time(__u64 now)
{
	return now >> REFUSED_UNIT_SHIFT & REFUSED_TIME_MASK;
}

static __always_inline __u64 refused_word(__u32 hash, __u32 seq)
{
	return REFUSED_IS_SET | (__u64)(hash & REFUSED_HASH_MASK) << 32 | seq;
}

static __always_inline bool is_back(__u64 word, __u32 hash, __u32 seq)
{
	return (word & (REFUSED_IS_SET | REFUSED_ATTEMPT_MASK)) == refused_word(hash, seq);
}

/* Whether the word is of somebody who was left unanswered, first no longer ago than that. */
static __always_inline bool is_deferred(__u64 word, __u64 now)
{
	__u64 age = (refused_time(now) - (word >> REFUSED_TIME_SHIFT)) & REFUSED_TIME_MASK;

	return word & REFUSED_IS_DEFERRED && age <= DEFERRED_FOR_NS >> REFUSED_UNIT_SHIFT;
}

/* Whether this attempt was left unanswered, however long ago. */
static __always_inline bool was_deferred(__u64 word, __u32 hash, __u32 seq)
{
	return is_back(word, hash, seq) && word & REFUSED_IS_DEFERRED;
}

/* One that was deferred is so again for nothing: what he keeps others waiting for was paid for. */
static __always_inline bool may_defer_again(__u64 word, __u32 hash, __u32 seq, __u64 now)
{
	return is_back(word, hash, seq) && is_deferred(word, now);
}

/* Which of a row's words is that of the attempt, or else the one that it takes: by its hash, or the other one, if that spares somebody who was left unanswered. */
static __always_inline __u32 which_word(const struct refused_row *row, __u32 hash, __u32 seq, __u64 now)
{
	__u64 word = row->words[hash & 1], other = row->words[!(hash & 1)];
	bool is_others = !is_back(word, hash, seq) && (is_back(other, hash, seq) || (is_deferred(word, now) && !is_deferred(other, now)));

	return (hash & 1) ^ is_others;
}

/* The word that should be there now: the same, if there is nothing to write. */
static __always_inline __u64 next_word(__u64 word, __u32 hash, __u32 seq, enum outcome outcome, __u64 now)
{
	bool is_his = is_back(word, hash, seq), is_kept = is_deferred(word, now);

	switch (outcome) {
	case OUTCOME_ADMITTED:
		/* Once: one that was let in may repeat its SYN, too. */
		return is_his ? 0 : word;
	case OUTCOME_DEFERRED:
		return is_his && is_kept ? word :
		       refused_word(hash, seq) | REFUSED_IS_DEFERRED | refused_time(now) << REFUSED_TIME_SHIFT;
	default:
		return is_kept && !is_his ? word : refused_word(hash, seq);
	}
}

#endif
