/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Until when something may happen, ns of bpf_ktime_get_ns(): one word for all CPUs, which is 0
 * while nothing may, so that to look costs one read and no clock.
 */
#ifndef TIDEGATE_DEADLINE_BPF_H
#define TIDEGATE_DEADLINE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* False is for sure: it is over, or there was none. */
static __always_inline bool has_deadline(const __u64 *deadline)
{
	return *(const volatile __u64 *)deadline;
}

static __always_inline bool is_before(__u64 *deadline, __u64 now)
{
	__u64 until = *(volatile __u64 *)deadline;

	if (now < until)
		return true;
	/* Unless another CPU extends it just now. */
	if (until)
		__sync_val_compare_and_swap(deadline, until, 0);
	return false;
}

/* All CPUs share it: written only when that is a step further. */
static __always_inline void extend(__u64 *deadline, __u64 until, __u64 step)
{
	if (*deadline + step < until)
		*deadline = until;
}

#endif
