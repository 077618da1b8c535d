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
	__type(value, struct refused_row);
} refused_syns SEC(".maps");

/* Until when one may come back, ns of bpf_ktime_get_ns(): a server that refuses nobody is spared the look. */
__u64 returns_until_ns = 0;

/* The word of the attempt, or the one that it takes; there always is one, which the verifier does not know. */
static __always_inline __u64 *find_refused(__u32 hash, __u32 seq, __u64 now)
{
	__u32 index = refused_row_of(hash);
	struct refused_row *row = bpf_map_lookup_elem(&refused_syns, &index);
	__u64 which;

	if (!row)
		return NULL;
	which = which_word(row, hash, seq, now);
	/* Or the compiler makes a negation of it, and the verifier of 6.1 no longer sees that it is 0 or 1. */
	barrier_var(which);
	return &row->words[which & 1];
}

/* Not inline, here and below: stack is short where SYNs are decided. */
static __noinline int may_defer_attempt_again(const struct segment *segment, __u64 now)
{
	__u32 hash = hash_flow(segment);
	__u64 *word = find_refused(hash, segment->seq, now);

	return word && may_defer_again(*word, hash, segment->seq, now);
}

/* An attempt that was decided: 0 if it was not refused before; 1 if it was, and 2 if it was left unanswered. */
static __noinline int see_return(const struct segment *segment, __u64 now, __u32 outcome)
{
	__u32 hash = hash_flow(segment);
	__u64 *place = find_refused(hash, segment->seq, now), word, next;

	if (!place)
		return 0;
	word = *place;
	next = next_word(word, hash, segment->seq, (enum outcome)outcome, now);
	if (next != word)
		*place = next;
	if (outcome != OUTCOME_ADMITTED)
		extend(&returns_until_ns, now + RETURNS_WITHIN_NS, RETURNS_STEP_NS);
	if (!is_back(word, hash, segment->seq))
		return 0;
	return was_deferred(word, hash, segment->seq) ? 2 : 1;
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
