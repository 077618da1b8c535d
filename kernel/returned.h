/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Attempts that come back: a client's TCP repeats the SYN that got no answer, and some repeat one that got a RST, with the same sequence number. They are remembered by a hash
 * of their flow, whose seed is secret, so that nobody can choose whom to push out of his place. No map and no clock: crates/kernel compiles it for the host. The includer has the
 * types of <linux/types.h>.
 *
 * In a crowd nearly all SYNs are of attempts that are not remembered, and to find that out must not cost a line that is in no cache. So those that got a RST have a small table, which holds
 * the last of them; and among those that got no answer, whose table is large, nobody looks but where a mark, one of few lines, says that there may be something.
 */
#ifndef TIDEGATE_RETURNED_H
#define TIDEGATE_RETURNED_H

enum {
	/* log2 of the words of those that got a RST, in 128 KiB. */
	REFUSED_SHIFT = 14,
	/*
	 * log2 of the rows of two of those that got no answer, in 8 MiB: the later ones, or those that were deferred. In a burst as many are deferred as come in some seconds,
	 * and who is forgotten pays again, and has no place that is owed to him: of 100,000 that were deferred so are one in 180, by chance, where single words would make it
	 * one in twenty.
	 */
	UNANSWERED_SHIFT = 19,
	/* log2 of the words of their marks, in 16 KiB, and how many are in each. */
	MARKS_SHIFT = 11,
	MARKS_PER_WORD = 24,
	ATTEMPT_HASH_BITS = 18,
};

/* Beside each other, so that a look is mostly at one cache line. */
struct unanswered_row {
	__u64 words[2];
};

/*
 * How long one is left unanswered for what he cost once, however often he comes back. Clients send their SYN again after 1, 3 and 7 s (RFC 6298, section 2), those
 * of Linux since 6.5 after 1, 2, 3, 4, 5 and 7 s (net.ipv4.tcp_syn_linear_timeouts), so that they are told after 7 s, while most still wait, unless they are paid for again.
 */
#define DEFERRED_FOR_NS 5500000000ULL
/* Of marks: for one to two of these, 8.6 s, they are there. By then who was deferred has been let in or told; who comes back later, as to a policy that drops, is new. */
#define MARKS_PERIOD_SHIFT 33

/* What became of a SYN. */
enum outcome {
	OUTCOME_ADMITTED,
	OUTCOME_RESET,
	OUTCOME_DROPPED,		/* by a policy that says nothing */
	OUTCOME_DEFERRED,		/* left unanswered, since a burst may be over when its client tries again */
};

/* What is known of an attempt from before. */
enum back {
	BACK_NOT,
	BACK_DROPPED,
	BACK_DEFERRED,
	BACK_RESET,
};

/* Of a word: the sequence number, what of the hash its place does not say, and that it is one; 0 is none. */
#define ATTEMPT_HASH_MASK ((1U << ATTEMPT_HASH_BITS) - 1)
#define ATTEMPT_MASK ((1ULL << (32 + ATTEMPT_HASH_BITS)) - 1)
#define ATTEMPT_IS_SET (1ULL << 63)
/* Of those that got no answer also whether it was deferred, and when first: units of 2^27 ns, 0.13 s, modulo 4096. */
#define ATTEMPT_IS_DEFERRED (1ULL << 50)
#define ATTEMPT_TIME_SHIFT 51
#define ATTEMPT_TIME_MASK 0xfff
#define ATTEMPT_UNIT_SHIFT 27

_Static_assert(!(ATTEMPT_MASK & ATTEMPT_IS_DEFERRED), "hash, flag, time and the set bit are apart");
_Static_assert(DEFERRED_FOR_NS >> ATTEMPT_UNIT_SHIFT < ATTEMPT_TIME_MASK / 2, "its time does not go round while one is deferred");
_Static_assert(ATTEMPT_HASH_BITS + REFUSED_SHIFT >= 32, "place and word say all of a hash");

static __always_inline __u32 refused_index_of(__u32 hash)
{
	return hash >> (32 - REFUSED_SHIFT);
}

static __always_inline __u32 unanswered_row_of(__u32 hash)
{
	return hash >> (32 - UNANSWERED_SHIFT);
}

/* ---- Marks: of a part of all hashes, whether somebody got no answer in this period or in the one before. ---- */

/*
 *	63..48 number of the period | 47..24 those of the one before | 23..0 those of this one
 */
#define MARKS_MASK ((1U << MARKS_PER_WORD) - 1)
#define MARKS_NUMBER_SHIFT (2 * MARKS_PER_WORD)

_Static_assert(MARKS_NUMBER_SHIFT + 16 == 64, "a number of 16 bits, and two periods");

static __always_inline __u32 marks_index_of(__u32 hash)
{
	return hash >> (32 - MARKS_SHIFT);
}

static __always_inline __u64 mark_of(__u32 hash)
{
	return 1ULL << ((hash & 0xffff) * MARKS_PER_WORD >> 16);
}

/* The word as of now. Another CPU's clock may have been read a little later, and then it is of its period. */
static __always_inline __u64 marks_at(__u64 word, __u64 now)
{
	__u16 number = now >> MARKS_PERIOD_SHIFT, ahead = number - (__u16)(word >> MARKS_NUMBER_SHIFT);

	switch (ahead) {
	case 0:
	case 0xffff:
		return word;
	case 1:
		return (__u64)number << MARKS_NUMBER_SHIFT | (word & MARKS_MASK) << MARKS_PER_WORD;
	default:
		return (__u64)number << MARKS_NUMBER_SHIFT;
	}
}

/* The word with this hash's mark. */
static __always_inline __u64 with_mark(__u64 word, __u32 hash, __u64 now)
{
	return marks_at(word, now) | mark_of(hash);
}

/* Whether somebody of this hash's mark may have got no answer and not be done with; false is for sure. */
static __always_inline bool is_marked(__u64 word, __u32 hash, __u64 now)
{
	return marks_at(word, now) & (mark_of(hash) | mark_of(hash) << MARKS_PER_WORD);
}

/* ---- Words. ---- */

static __always_inline __u64 attempt_word(__u32 hash, __u32 seq)
{
	return ATTEMPT_IS_SET | (__u64)(hash & ATTEMPT_HASH_MASK) << 32 | seq;
}

static __always_inline __u64 unanswered_word(__u32 hash, __u32 seq, __u64 now)
{
	return attempt_word(hash, seq) | (now >> ATTEMPT_UNIT_SHIFT & ATTEMPT_TIME_MASK) << ATTEMPT_TIME_SHIFT;
}

static __always_inline bool is_back(__u64 word, __u32 hash, __u32 seq)
{
	return (word & (ATTEMPT_IS_SET | ATTEMPT_MASK)) == attempt_word(hash, seq);
}

/* Whether the word is of somebody who was deferred, first no longer ago than that. */
static __always_inline bool is_deferred(__u64 word, __u64 now)
{
	__u64 age = ((now >> ATTEMPT_UNIT_SHIFT) - (word >> ATTEMPT_TIME_SHIFT)) & ATTEMPT_TIME_MASK;

	return word & ATTEMPT_IS_DEFERRED && age <= DEFERRED_FOR_NS >> ATTEMPT_UNIT_SHIFT;
}

/* What the word of one that got no answer says of this attempt, however long ago that was. */
static __always_inline enum back read_unanswered(__u64 word, __u32 hash, __u32 seq)
{
	if (!is_back(word, hash, seq))
		return BACK_NOT;
	return word & ATTEMPT_IS_DEFERRED ? BACK_DEFERRED : BACK_DROPPED;
}

/* One that was deferred is so again for nothing: what he keeps others waiting for was paid for. */
static __always_inline bool may_defer_again(__u64 word, __u32 hash, __u32 seq, __u64 now)
{
	return is_back(word, hash, seq) && is_deferred(word, now);
}

/* Which of a row's words is that of the attempt, or else the one that it takes: by its hash, or the other one, if that spares somebody who was deferred. */
static __always_inline __u32 which_word(const struct unanswered_row *row, __u32 hash, __u32 seq, __u64 now)
{
	__u64 word = row->words[hash & 1], other = row->words[!(hash & 1)];
	bool is_others = !is_back(word, hash, seq) && (is_back(other, hash, seq) || (is_deferred(word, now) && !is_deferred(other, now)));

	return (hash & 1) ^ is_others;
}

static __always_inline bool is_unanswered(enum outcome outcome)
{
	return outcome == OUTCOME_DROPPED || outcome == OUTCOME_DEFERRED;
}

/* The word that should be there now, of those that got a RST: the same, if there is nothing to write. One that was let in may repeat its SYN, too, and is back once. */
static __always_inline __u64 next_refused(__u64 word, __u32 hash, __u32 seq, enum outcome outcome)
{
	if (outcome == OUTCOME_RESET)
		return attempt_word(hash, seq);
	return is_back(word, hash, seq) ? 0 : word;
}

/* The same of those that got no answer. */
static __always_inline __u64 next_unanswered(__u64 word, __u32 hash, __u32 seq, enum outcome outcome, __u64 now)
{
	bool is_his = is_back(word, hash, seq), is_kept = is_deferred(word, now);

	switch (outcome) {
	case OUTCOME_DEFERRED:
		return is_his && is_kept ? word : unanswered_word(hash, seq, now) | ATTEMPT_IS_DEFERRED;
	case OUTCOME_DROPPED:
		return is_kept && !is_his ? word : unanswered_word(hash, seq, now);
	default:
		return is_his ? 0 : word;
	}
}

#endif
