/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tells a SYN that comes again at a further interface, as at a bridge above a VLAN of eth0. Both
 * are guarded: the bridge has other ports, and eth0 has frames of its own.
 *
 * The kernel hands a frame up from interface to interface on one CPU, and takes no other meanwhile
 * (another_round in __netif_receive_skb_core(), br_pass_frame_up()). So it is the last SYN that
 * this CPU let through. If RPS of the upper interface moves it, it is decided again.
 */
#ifndef TIDEGATE_AGAIN_BPF_H
#define TIDEGATE_AGAIN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "segment.bpf.h"
#include "hook.bpf.h"

/*
 * A SYN that was let through. Its checksum is also of its addresses, and of the timestamp, which is
 * another when a client repeats it.
 */
struct passed_syn {
	__u32 seq;
	__be16 source_port;
	__be16 destination_port;
	__sum16 checksum;
	__u32 ifindex;			/* where it was decided, not where it was seen last; 0: none yet */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct passed_syn);
} passed_syns SEC(".maps");

/* Native XDP sees a batch of frames before the first of them is handed up. */
static __always_inline bool is_handed_up_at_once(enum hook hook)
{
	return hook != HOOK_XDP;
}

/* At the same interface it is a repetition by the client. */
static __always_inline bool was_passed(const struct segment *segment, __u32 ifindex)
{
	const struct passed_syn *last;
	__u32 zero = 0;

	last = bpf_map_lookup_elem(&passed_syns, &zero);
	return last && last->seq == segment->seq && last->checksum == segment->checksum && last->ifindex && last->ifindex != ifindex &&
	       last->source_port == segment->source_port && last->destination_port == segment->destination_port;
}

static __always_inline void note_passed(const struct segment *segment, __u32 ifindex)
{
	struct passed_syn *last;
	__u32 zero = 0;

	last = bpf_map_lookup_elem(&passed_syns, &zero);
	if (!last)
		return;
	last->seq = segment->seq;
	last->source_port = segment->source_port;
	last->destination_port = segment->destination_port;
	last->checksum = segment->checksum;
	last->ifindex = ifindex;
}

#endif
