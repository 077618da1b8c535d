/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Until when something may happen, ns of bpf_ktime_get_ns(): one word for all CPUs, which is 0 while nothing may, so that to look costs one read and no
 * clock.
 */
#ifndef TIDEGATE_MOMENT_BPF_H
#define TIDEGATE_MOMENT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* False is for sure. */
static __always_inline bool may_be_before(const __u64 *moment)
{
	return *(const volatile __u64 *)moment;
}

static __always_inline bool is_before(__u64 *moment, __u64 now)
{
	__u64 until = *(volatile __u64 *)moment;

	if (now < until)
		return true;
	/* Unless another CPU puts it off just now. */
	if (until)
		__sync_val_compare_and_swap(moment, until, 0);
	return false;
}

/* All CPUs share it: written only when it is a step further. */
static __always_inline void put_off(__u64 *moment, __u64 until, __u64 step)
{
	if (*moment + step < until)
		*moment = until;
}

#endif
