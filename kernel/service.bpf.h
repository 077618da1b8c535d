/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The servers of the guarded listeners, and who waits for each: service.h says how. Each server has
 * a lock, which is taken a few times in the life of a connection. A SYN takes it only when an epoch
 * is over. Otherwise it reads sums, and changes words that are not under the lock.
 */
#ifndef TIDEGATE_SERVICE_BPF_H
#define TIDEGATE_SERVICE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "unserved.h"
#include "rules.bpf.h"

enum {
	BY_SERVER = 1 << 8,		/* or'ed to a verdict: only the server was in the way */
};

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
 * decide_syn(). Not inline, and by the index: a program and what it calls have 512 bytes of stack
 * together. Linux 6.1 counts frames in pieces of 32, and admit_xdp_skb has none left. Not static,
 * where that takes no stack: the verifier then walks it only once.
 */
__noinline int decide_before_server(const struct listener_rule *rule, struct listener_load *load, const struct attempt *attempt, __u64 now)
{
	const struct pace *pace;
	struct service *service;
	bool is_by = false;
	enum verdict verdict;

	if (!rule || !load || !attempt || !find_service(rule->service, &service, &pace))
		return VERDICT_ADMIT;
	if (now >= *(volatile __u64 *)&service->epoch_ends_ns) {
		bpf_spin_lock(&service->lock);
		turn_epochs(service, pace, now);
		bpf_spin_unlock(&service->lock);
	}
	verdict = decide_syn(&rule->policy, load, attempt, service, pace, now, &is_by);
	return is_by ? verdict | BY_SERVER : verdict;
}

/* The kernel decides alone: the limit is one that is found, and no crowd is there. */
__noinline int is_left_to_kernel(const struct listener_rule *rule, __u64 now)
{
	const struct pace *pace;
	struct service *service;

	return rule && is_limit_found(&rule->policy) && !rule->policy.reserved_slots && find_service(rule->service, &service, &pace) && !is_refusing(service, pace, now);
}

#endif
