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

/* A SYN that was let through. */
struct passed_syn {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u32 seq;
	__u32 ifindex;			/* where it was decided, not where it was seen last; 0: none yet */
	__sum16 checksum;		/* also of the timestamp, which is another when a client repeats its SYN */
	__u16 zero;
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

/* At the same interface it is a repetition by the client. Not static: see is_first_syn(). */
__noinline int was_passed(const struct segment *segment, __u32 ifindex)
{
	const struct passed_syn *last;
	__u32 zero = 0;

	last = bpf_map_lookup_elem(&passed_syns, &zero);
	if (!segment || !last || last->seq != segment->seq || last->ifindex == ifindex || !last->ifindex)
		return false;
	return last->source_port == segment->source_port && last->destination_port == segment->destination_port &&
	       last->checksum == segment->checksum &&
	       !__builtin_memcmp(&last->source, &segment->source, sizeof(last->source)) &&
	       !__builtin_memcmp(&last->destination, &segment->destination, sizeof(last->destination));
}

/* Returns 0, because Linux 6.1 wants a number. */
__noinline int note_passed(const struct segment *segment, __u32 ifindex)
{
	struct passed_syn *last;
	__u32 zero = 0;

	last = bpf_map_lookup_elem(&passed_syns, &zero);
	if (!segment || !last)
		return 0;
	last->source = segment->source;
	last->destination = segment->destination;
	last->source_port = segment->source_port;
	last->destination_port = segment->destination_port;
	last->seq = segment->seq;
	last->ifindex = ifindex;
	last->checksum = segment->checksum;
	return 0;
}

#endif
