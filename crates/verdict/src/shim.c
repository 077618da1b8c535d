/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel/verdict.h with plain numbers for arguments, so that no struct layout is written down a second time.
 */
#include <linux/types.h>
#include <stdint.h>
#include "verdict.h"

#define POLICY_AND_LOAD                                                                                               \
	uint32_t full, uint32_t overbook_percent, uint32_t syn_when_full, uint32_t ack_when_full,                     \
		uint32_t accept_qlen, uint32_t accept_limit, uint32_t syn_qlen, uint32_t syn_limit

#define MAKE_POLICY_AND_LOAD                                                                                          \
	const struct listener_policy policy = {                                                                       \
		.full = full,                                                                                         \
		.overbook_percent = overbook_percent,                                                                 \
		.syn_when_full = syn_when_full,                                                                       \
		.ack_when_full = ack_when_full,                                                                       \
	};                                                                                                            \
	const struct listener_load load = {                                                                           \
		.accept_qlen = accept_qlen,                                                                           \
		.accept_limit = accept_limit,                                                                         \
		.syn_qlen = syn_qlen,                                                                                 \
		.syn_limit = syn_limit,                                                                               \
	}

uint32_t tidegate_admit_syn(POLICY_AND_LOAD, uint64_t now_ns)
{
	MAKE_POLICY_AND_LOAD;

	return admit_syn(&policy, &load, now_ns);
}

uint32_t tidegate_admit_ack(POLICY_AND_LOAD)
{
	MAKE_POLICY_AND_LOAD;

	return admit_ack(&policy, &load);
}
