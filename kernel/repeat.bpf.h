/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tells the first SYN of a connection from its repetitions, in a dry run. A dry run refuses nobody,
 * so clients repeat the SYNs that the kernel drops. The guard would have refused each client once.
 */
#ifndef TIDEGATE_REPEAT_BPF_H
#define TIDEGATE_REPEAT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "segment.bpf.h"
#include "answer.bpf.h"

/*
 * Places of `sent_syns`, a power of two. The agent sets it for a dry run. 0: nothing is remembered,
 * and the verifier drops the code.
 */
const volatile __u32 sent_syn_places = 0;

/*
 * The last SYN of each place: its flow's hash and its sequence number. A repetition has both. A
 * later SYN takes the place, and a repetition of the former then counts as a first one. With a
 * million places and 10,000 SYNs a second that happens to 1% of those that are repeated after a
 * second.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sent_syns SEC(".maps");

/* Not static: its frame then costs no stack on the way to a decision. */
__noinline int is_first_syn(const struct segment *segment)
{
	__u64 syn, *last;
	__u32 place;

	if (!segment || !sent_syn_places)
		return false;
	place = hash_flow(segment);
	syn = (__u64)place << 32 | segment->seq;
	place = (place ^ segment->seq * 0x9e3779b1) & (sent_syn_places - 1);
	last = bpf_map_lookup_elem(&sent_syns, &place);
	if (!last || *last == syn)
		return false;
	*last = syn;
	return true;
}

#endif
