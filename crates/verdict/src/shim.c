/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel/verdict.h with plain numbers for arguments, so that no struct layout is written down a second time.
 */
#include <linux/types.h>
#include <stdint.h>
#include "verdict.h"

uint32_t tidegate_admit_syn(uint32_t when_accept_full, uint32_t accept_qlen, uint32_t accept_limit,
			    uint32_t syn_qlen, uint32_t syn_limit, uint64_t now_ns)
{
	const struct listener_policy policy = { .syn_when_accept_full = when_accept_full };
	const struct listener_load load = {
		.accept_qlen = accept_qlen,
		.accept_limit = accept_limit,
		.syn_qlen = syn_qlen,
		.syn_limit = syn_limit,
	};

	return admit_syn(&policy, &load, now_ns);
}
