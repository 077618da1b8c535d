/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Attempts that come back: a client's TCP repeats the SYN that got no answer, and some repeat one that got a RST, with the same sequence number. What was
 * refused is remembered by a hash of its flow, whose seed is secret, so that nobody can choose whom to push out of his place.
 */
#ifndef TIDEGATE_RETURNED_BPF_H
#define TIDEGATE_RETURNED_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "segment.bpf.h"
#include "answer.bpf.h"

enum {
	REFUSED_SHIFT = 17,		/* log2 of how many are remembered; where two have one place, the later */
};

#define RETURNS_WITHIN_NS 64000000000ULL /* after the seventh SYN of Linux, the longest wait between two (tcp(7), tcp_syn_retries) */
#define RETURNS_STEP_NS 1000000000

/* The whole hash, and the sequence number. 0 is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << REFUSED_SHIFT);
	__type(key, __u32);
	__type(value, __u64);
} refused_syns SEC(".maps");

/* Until when one may come back, ns of bpf_ktime_get_ns(): a server that refuses nobody is spared the look. */
__u64 returns_until_ns = 0;

/* Whether this attempt was refused before; if it is refused now, the next one will have been. Not inline: stack is short where SYNs are decided. */
static __noinline int see_return(const struct segment *segment, __u64 now, __u32 is_refused)
{
	__u32 hash = hash_flow(segment), place = hash >> (32 - REFUSED_SHIFT);
	__u64 attempt = (__u64)hash << 32 | segment->seq, *remembered;
	bool is_back;

	remembered = bpf_map_lookup_elem(&refused_syns, &place);
	if (!remembered)
		return 0;
	is_back = *remembered == attempt;
	if (!is_refused) {
		/* Once: one that was let in may repeat its SYN, too. */
		if (is_back)
			*remembered = 0;
		return is_back;
	}
	if (!is_back)
		*remembered = attempt;
	/* All CPUs share it: write only when it matters. */
	if (returns_until_ns < now + RETURNS_WITHIN_NS - RETURNS_STEP_NS)
		returns_until_ns = now + RETURNS_WITHIN_NS;
	return is_back;
}

/* Whether any may come back now. */
static __always_inline bool may_be_return(__u64 now)
{
	return now < *(volatile __u64 *)&returns_until_ns;
}

#endif
