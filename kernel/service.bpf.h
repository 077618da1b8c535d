/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The map of servers behind the guarded listeners, and the calls into service.h and unserved.h. A
 * connection takes its server's lock a few times in its life. A SYN takes it only when an epoch is
 * over. Else it reads sums, and writes words that the lock does not cover.
 */
#ifndef TIDEGATE_SERVICE_BPF_H
#define TIDEGATE_SERVICE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "unserved.h"
#include "rules.bpf.h"

enum {
	BY_SERVER = 1 << 8,		/* or'ed to a verdict: the server alone was the reason */
};

/* An array, not per CPU: see struct service. */
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

/* False only for an index out of range. The verifier cannot rule that out. */
static __always_inline bool find_service(__u32 index, struct service **service, const struct pace **pace)
{
	*service = bpf_map_lookup_elem(&services, &index);
	*pace = bpf_map_lookup_elem(&paces, &index);
	return *service && *pace;
}

/*
 * Calls decide_syn(). It is not inline, and takes an index, to save stack. A program and its
 * callees share 512 bytes. Linux 6.1 counts frames in units of 32, and admit_xdp_skb has none left.
 * It is not static either, which costs no stack here: the verifier walks it only once.
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

/* True when the kernel decides alone: the agent finds the limit, and no crowd is there. */
__noinline int is_left_to_kernel(const struct listener_rule *rule, __u64 now)
{
	const struct pace *pace;
	struct service *service;

	return rule && is_limit_found(&rule->policy) && !rule->policy.reserved_slots && find_service(rule->service, &service, &pace) && !is_refusing(service, pace, now);
}

#endif
