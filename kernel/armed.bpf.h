/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Keeps the time until which segments after the SYN are examined. It does not examine them. */
#ifndef TIDEGATE_ARMED_BPF_H
#define TIDEGATE_ARMED_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "deadline.bpf.h"
#include "cookie.h"

#define ARMED_NS 2000000000ULL		/* longest handshake that is watched after the last SYN */
#define ARMED_STEP_NS 1000000

/*
 * Segments with ACK are examined until this time, in ns of bpf_ktime_get_ns(), for all listeners
 * together. It is 0 while no listener is near overflow: then a segment costs one read.
 */
__u64 armed_until_ns = 0;

/*
 * A handshake may end by one of the guard's cookies until this time. Beside XDP, tc looks for
 * nothing else.
 */
__u64 cookies_until_ns = 0;

/* Makes the ACK stage examine segments for the next ARMED_NS. */
static __always_inline void arm(__u64 now)
{
	extend(&armed_until_ns, now + ARMED_NS, ARMED_STEP_NS);
}

/* The same, for as long as a cookie is valid. */
static __always_inline void arm_for_cookie(__u64 now, bool is_kernels)
{
	__u64 until = now + ((__u64)COOKIE_PERIODS << COOKIE_PERIOD_SHIFT);

	extend(&armed_until_ns, until, ARMED_STEP_NS);
	if (!is_kernels)
		extend(&cookies_until_ns, until, ARMED_STEP_NS);
}

/* False is certain, and costs one read. */
static __always_inline bool may_be_armed(void)
{
	return has_deadline(&armed_until_ns);
}

static __always_inline bool is_armed(void)
{
	return may_be_armed() && is_before(&armed_until_ns, bpf_ktime_get_ns());
}

/* False is certain, and costs one read. */
static __always_inline bool may_end_by_cookie(void)
{
	return has_deadline(&cookies_until_ns);
}

static __always_inline bool is_armed_for_cookies(void)
{
	return may_end_by_cookie() && is_before(&cookies_until_ns, bpf_ktime_get_ns());
}

#endif
