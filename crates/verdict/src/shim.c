/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel/verdict.h with numbers for arguments, so that no struct layout is written down a second time: the fields of struct
 * listener_policy and struct listener_load, in their order.
 */
#include <linux/types.h>
#include <stdint.h>
#include "verdict.h"

static struct listener_policy policy_of(const uint32_t numbers[8])
{
	return (struct listener_policy){
		.full = numbers[0],
		.overbook_percent = numbers[1],
		.rate_per_s = numbers[2],
		.burst = numbers[3],
		.refused_permille = numbers[4],
		.syn_when_full = numbers[5],
		.ack_when_full = numbers[6],
		.on_fin = numbers[7],
	};
}

static struct listener_load load_of(const uint32_t numbers[4])
{
	return (struct listener_load){
		.accept_qlen = numbers[0],
		.accept_limit = numbers[1],
		.syn_qlen = numbers[2],
		.syn_limit = numbers[3],
	};
}

uint32_t tidegate_admit_syn(const uint32_t policy[8], const uint32_t load[4], uint64_t now_ns, uint64_t schedule_ns,
			    uint32_t hash)
{
	const struct attempt attempt = { .now_ns = now_ns, .schedule_ns = schedule_ns, .hash = hash };
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return admit_syn(&its_policy, &its_load, &attempt);
}

uint64_t tidegate_next_schedule(const uint32_t policy[8], uint64_t now_ns, uint64_t schedule_ns)
{
	const struct attempt attempt = { .now_ns = now_ns, .schedule_ns = schedule_ns };
	const struct listener_policy its_policy = policy_of(policy);

	return next_schedule(&its_policy, &attempt);
}

uint32_t tidegate_admit_ack(const uint32_t policy[8], const uint32_t load[4])
{
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return admit_ack(&its_policy, &its_load);
}

uint32_t tidegate_admit_fin(const uint32_t policy[8], uint32_t payload, uint32_t ahead, uint32_t unread,
			    uint32_t unacknowledged)
{
	const struct listener_policy its_policy = policy_of(policy);
	const struct fin fin = {
		.payload = payload,
		.ahead = ahead,
		.unread = unread,
		.unacknowledged = unacknowledged,
	};

	return admit_fin(&its_policy, &fin);
}
