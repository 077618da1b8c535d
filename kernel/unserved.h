/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the SYN stage asks of a server: how many wait for it or will, and whether one more may. Nothing of it is under the lock of struct service. */
#ifndef TIDEGATE_UNSERVED_H
#define TIDEGATE_UNSERVED_H

#include "burst.h"
#include "expected.h"

/* Connections that wait for the server, or will when their handshake has ended. */
static __always_inline void read_unserved(struct service *service, const struct pace *pace, __u64 now, struct listener_load *load)
{
	__u32 recent = count_recent(service, pace), expected = count_expected(service, pace, now), queued = count_virtual_queue(service, pace, now);
	__u32 promised = expected > pace->taken_meanwhile ? expected - pace->taken_meanwhile : 0;
	__u64 us = recent ? read_sojourn_ns(service, now) / NS_PER_US : 0;

	/*
	 * Less what it can answer until the SYN that is here now is a connection: of those that wait, too, or those that were let in together would come
	 * together, and nobody else meanwhile, so that the server has too many and nobody in turns.
	 */
	load->unserved = recent + expected > pace->served_meanwhile ? recent + expected - pace->served_meanwhile : 0;
	if (load->unserved < queued)
		load->unserved = queued;
	/* Nor do all of them meet in the accept queue whom it has room for one after the other. */
	load->promised = count_promised(load, promised > queued ? promised : queued);
	load->unserved_limit = pace->limit;
	load->answers_per_s = pace->answers_per_s;
	load->sojourn_us = us < ~(__u32)0 ? us : ~(__u32)0;
}

/* Whether one may go past the limit, since nobody was answered for long and nobody went past it either: the CPU that says so lets it in. */
static __always_inline bool may_pass(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 last = *(volatile __u64 *)&service->trickled_ns;

	return pace->trickle_ns && read_stalled_ns(service, now) > (__s64)pace->trickle_ns &&
	       (__s64)(now - last) > (__s64)pace->trickle_ns && __sync_bool_compare_and_swap(&service->trickled_ns, last, now);
}

/* All that a SYN is decided by. Epochs that are over have been turned. */
static __always_inline void read_waiting(struct service *service, const struct pace *pace, __u64 now, struct listener_load *load)
{
	begin_slot(service, pace, now);
	settle_virtual_queue(service, pace, now);
	read_unserved(service, pace, now, load);
}

/* Whether one may go past the limit, perhaps to a place that is owed to him: so many past one that was found, with one more; 0 for any other. */
static __always_inline bool may_go_past(struct service *service, const struct pace *pace, __u32 past, bool is_owed, __u64 now)
{
	return may_pass(service, pace, now) || (past && ((is_owed && has_owed_place(pace, past)) || may_queue(service, pace, past, now)));
}

#endif
