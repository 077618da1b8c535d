/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A time until which an event may happen, in ns of bpf_ktime_get_ns(). All CPUs share the word. It
 * is 0 while the event cannot happen. Then a check costs one read and no clock.
 */
#ifndef TIDEGATE_DEADLINE_BPF_H
#define TIDEGATE_DEADLINE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* False is certain: the deadline is over, or there was none. */
static __always_inline bool has_deadline(const __u64 *deadline)
{
	return *(const volatile __u64 *)deadline;
}

static __always_inline bool is_before(__u64 *deadline, __u64 now)
{
	__u64 until = *(volatile __u64 *)deadline;

	if (now < until)
		return true;
	/* The compare-and-swap keeps a deadline that another CPU extends now. */
	if (until)
		__sync_val_compare_and_swap(deadline, until, 0);
	return false;
}

/* Writes only when the deadline moves by more than `step`, because all CPUs share the word. */
static __always_inline void extend(__u64 *deadline, __u64 until, __u64 step)
{
	if (*deadline + step < until)
		*deadline = until;
}

#endif
