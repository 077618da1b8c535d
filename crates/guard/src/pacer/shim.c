/* SPDX-License-Identifier: Apache-2.0 */
/* kernel/service.h for the host, as kernel/follow.bpf.h and kernel/syn_stage.bpf.h use it; there is one CPU, and no lock. */
#include <linux/types.h>
#include <stdbool.h>
#include <sys/cdefs.h>

struct bpf_spin_lock {
	__u32 val;
};

#include "service.h"

void tidegate_begin(struct service *service, const struct pace *pace, struct wait *wait, __u32 handshake_us, __u64 now)
{
	arrive(service, pace, handshake_us, now);
	begin(service, pace, wait, handshake_us, now);
}

void tidegate_go_on(struct service *service, const struct pace *pace, struct wait *wait, __u64 now)
{
	go_on(service, pace, wait, now);
}

void tidegate_end(struct service *service, const struct pace *pace, const struct wait *wait, bool is_answered, __u64 now)
{
	end(service, pace, wait, is_answered, bucket_of((now - wait->since_ns) / NS_PER_US), now);
}

/* A SYN that finds such queues: whether it is admitted; sets is_server_full if that is why it is not. */
bool tidegate_admits(struct service *service, const struct pace *pace, __u32 accept_qlen, __u32 accept_limit, __u32 syn_qlen,
		     bool *is_server_full, __u64 now)
{
	const struct listener_policy policy = { .syn_when_full = VERDICT_RESET, .trigger = TRIGGER_UNSERVED };
	struct listener_load load = {
		.accept_qlen = accept_qlen,
		.accept_limit = accept_limit,
		.syn_qlen = syn_qlen,
		.syn_limit = accept_limit,
	};
	const struct attempt attempt = { .now_ns = now };
	bool is_admitted;

	if (now >= service->epoch_ends_ns)
		turn_epochs(service, pace, now);
	begin_slot(service, pace, now);
	read_unserved(service, pace, now, &load);
	is_admitted = admit_syn(&policy, &load, &attempt) == VERDICT_ADMIT;
	*is_server_full = !is_admitted && is_refused_by_server_alone(&policy, &load, 0);
	if (*is_server_full && (may_pass(service, pace, now) || may_queue(service, pace, now))) {
		*is_server_full = false;
		is_admitted = true;
	}
	if (is_admitted)
		expect(service, pace, now);
	return is_admitted;
}
