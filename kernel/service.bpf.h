/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The servers of the guarded listeners, and who waits for each: service.h says how. One lock for each server: it is taken a few times in the life of
 * a connection, and for a SYN only when an epoch is over; else a SYN reads sums, and changes words that are not under the lock.
 */
#ifndef TIDEGATE_SERVICE_BPF_H
#define TIDEGATE_SERVICE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "unserved.h"
#include "rules.bpf.h"
#include "returned.bpf.h"

/* An array, and not per CPU: see struct service. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, __u32);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, __u32);
	__type(value, struct pace);
} paces SEC(".maps");

/* False only if the index is none, which the verifier cannot rule out. */
static __always_inline bool find_service(__u32 index, struct service **service, const struct pace **pace)
{
	*service = bpf_map_lookup_elem(&services, &index);
	*pace = bpf_map_lookup_elem(&paces, &index);
	return *service && *pace;
}

/*
 * read_waiting(). Not inline, like what follows, and by the index: a program and what it calls
 * have 512 bytes of stack together. 6.1 counts frames in pieces of 32, and admit_xdp_skb has none
 * left. Not static, where that takes no stack: the verifier then walks it only once.
 */
__noinline int read_service(__u32 index, __u64 now, struct listener_load *load)
{
	const struct pace *pace;
	struct service *service;

	if (!load || !find_service(index, &service, &pace))
		return 0;
	if (now >= *(volatile __u64 *)&service->epoch_ends_ns) {
		bpf_spin_lock(&service->lock);
		turn_epochs(service, pace, now);
		bpf_spin_unlock(&service->lock);
	}
	read_waiting(service, pace, now, load);
	return 0;
}

/* may_go_past(). */
__noinline int may_exceed(__u32 index, __u64 now, __u32 past, __u32 is_owed)
{
	const struct pace *pace;
	struct service *service;

	if (!find_service(index, &service, &pace))
		return 0;
	return may_go_past(service, pace, past, is_owed, now);
}

/* A SYN that would be refused, before a server whose limit is found: whether it was left unanswered before, not long ago. */
static __always_inline bool was_left_unanswered(const struct listener_rule *rule, __u32 hash, __u32 seq, __u64 now)
{
	return is_limit_found(&rule->policy) && may_be_return(now) && may_defer_attempt_again(hash, seq, now);
}

/*
 * One that finds no place in the accept queue: whether it is better left unanswered, as in a burst. Its client sends it again within the time that a burst
 * may take.
 */
static __noinline int may_defer(const struct listener_rule *rule, __u64 now)
{
	const struct pace *pace;
	struct service *service;

	return is_limit_found(&rule->policy) && find_service(rule->service, &service, &pace) && defer(service, pace, now);
}

/* One that was deferred has come back, and gets in. */
static __noinline int repay_service(const struct listener_rule *rule, __u64 now)
{
	const struct pace *pace;
	struct service *service;

	if (is_limit_found(&rule->policy) && find_service(rule->service, &service, &pace))
		repay(service, pace, now);
	return 0;
}

/* One was admitted. */
__noinline int expect_service(__u32 index, __u64 now)
{
	const struct pace *pace;
	struct service *service;

	if (find_service(index, &service, &pace))
		expect(service, pace, now);
	return 0;
}

#endif
