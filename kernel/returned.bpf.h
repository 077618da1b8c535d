/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Attempts that come back, of all CPUs: kernel/returned.h says what is remembered of them.
 */
#ifndef TIDEGATE_RETURNED_BPF_H
#define TIDEGATE_RETURNED_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "segment.bpf.h"
#include "answer.bpf.h"
#include "deadline.bpf.h"
#include "returned.h"

#define RETURNS_WITHIN_NS 64000000000ULL /* after the seventh SYN of Linux, the longest wait between two (tcp(7), tcp_syn_retries) */
#define RETURNS_STEP_NS 1000000000

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << REFUSED_SHIFT);
	__type(key, __u32);
	__type(value, __u64);
} refused_syns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << UNANSWERED_SHIFT);
	__type(key, __u32);
	__type(value, struct unanswered_row);
} unanswered_syns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << MARKS_SHIFT);
	__type(key, __u32);
	__type(value, __u64);
} unanswered_marks SEC(".maps");

/* Until when one may come back, ns of bpf_ktime_get_ns(): a server that refuses nobody is spared the look. */
__u64 returns_until_ns = 0;

static __always_inline __u64 *find_marks(__u32 hash)
{
	__u32 index = marks_index_of(hash);

	return bpf_map_lookup_elem(&unanswered_marks, &index);
}

static __always_inline bool may_be_unanswered(__u32 hash, __u64 now)
{
	const __u64 *marks = find_marks(hash);

	return marks && is_marked(*(volatile __u64 *)marks, hash, now);
}

/* Somebody gets no answer. */
static __always_inline void mark(__u32 hash, __u64 now)
{
	__u64 *marks = find_marks(hash), word, next;

	if (!marks)
		return;
	word = *(volatile __u64 *)marks;
	next = with_mark(word, hash, now);
	/* If another CPU marks just then, in the same period. */
	if (next != word && __sync_val_compare_and_swap(marks, word, next) != word)
		__sync_fetch_and_or(marks, mark_of(hash));
}

/* The word of the attempt among those that got no answer, or the one that it takes; there always is one, which the verifier does not know. */
static __always_inline __u64 *find_unanswered(__u32 hash, __u32 seq, __u64 now)
{
	__u32 index = unanswered_row_of(hash);
	struct unanswered_row *row = bpf_map_lookup_elem(&unanswered_syns, &index);
	__u64 which;

	if (!row)
		return NULL;
	which = which_word(row, hash, seq, now);
	/* Or the compiler makes a negation of it, and the verifier of 6.1 no longer sees that it is 0 or 1. */
	barrier_var(which);
	return &row->words[which & 1];
}

/* Neither inline nor static, here and below: see read_service(). */
__noinline int may_defer_attempt_again(__u32 hash, __u32 seq, __u64 now)
{
	__u64 *word = may_be_unanswered(hash, now) ? find_unanswered(hash, seq, now) : NULL;

	return word && may_defer_again(*word, hash, seq, now);
}

/* As see_return(), of those that got a RST. */
static __always_inline enum back see_refused(__u32 hash, __u32 seq, enum outcome outcome)
{
	__u32 index = refused_index_of(hash);
	__u64 *place = bpf_map_lookup_elem(&refused_syns, &index), word, next;

	if (!place)
		return BACK_NOT;
	word = *place;
	next = next_refused(word, hash, seq, outcome);
	if (next != word)
		*place = next;
	return is_back(word, hash, seq) ? BACK_RESET : BACK_NOT;
}

/* As see_return(), of those that got no answer. */
static __always_inline enum back see_unanswered(__u32 hash, __u32 seq, enum outcome outcome, __u64 now)
{
	__u64 *place = find_unanswered(hash, seq, now), word, next;

	if (!place)
		return BACK_NOT;
	word = *place;
	next = next_unanswered(word, hash, seq, outcome, now);
	if (next != word)
		*place = next;
	return read_unanswered(word, hash, seq);
}

/* An attempt that was decided: enum back. */
__noinline int see_return(__u32 hash, __u32 seq, __u64 now, __u32 outcome)
{
	bool is_left = is_unanswered((enum outcome)outcome);
	enum back back = see_refused(hash, seq, (enum outcome)outcome), left = BACK_NOT;

	if (is_left || may_be_unanswered(hash, now))
		left = see_unanswered(hash, seq, (enum outcome)outcome, now);
	if (is_left)
		mark(hash, now);
	if (outcome != OUTCOME_ADMITTED)
		extend(&returns_until_ns, now + RETURNS_WITHIN_NS, RETURNS_STEP_NS);
	return left != BACK_NOT ? left : back;
}

/* Whether any may come back: false is for sure. */
static __always_inline bool may_any_return(void)
{
	return has_deadline(&returns_until_ns);
}

static __always_inline bool may_be_return(__u64 now)
{
	return is_before(&returns_until_ns, now);
}

#endif
