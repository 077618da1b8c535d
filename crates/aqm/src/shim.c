/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel/red.h and kernel/protected.h with numbers for arguments, so that no struct layout is written down a second time: the fields of its structs, in their order.
 */
#include <linux/types.h>
#include <stdint.h>
#include "protected.h"
#include "red.h"

static struct red_params params_of(const uint64_t numbers[9])
{
	return (struct red_params){
		.min = numbers[0],
		.max = numbers[1],
		.unit = numbers[2],
		.is_gentle = numbers[3],
		.waits = numbers[4],
		.spares_one = numbers[5],
		.max_probability = numbers[6],
		.weight = numbers[7],
		.slot_ns = numbers[8],
	};
}

static struct red_state state_of(const uint64_t numbers[3])
{
	return (struct red_state){
		.average = numbers[0],
		.idle_since_ns = numbers[1],
		.since_drop = numbers[2],
	};
}

static void keep_state(const struct red_state *state, uint64_t numbers[3])
{
	numbers[0] = state->average;
	numbers[1] = state->idle_since_ns;
	numbers[2] = state->since_drop;
}

static struct redfavor_guard guard_of(const uint64_t numbers[3])
{
	return (struct redfavor_guard){ .places = numbers[0], .share = numbers[1], .burst = numbers[2] };
}

/* Whether the packet that arrives may be dropped by the average. */
int tidegate_red_update(const uint64_t params[9], uint64_t state[3], uint32_t qlen, uint64_t now_ns)
{
	const struct red_params its_params = params_of(params);
	struct red_state its_state = state_of(state);

	red_update(&its_params, &its_state, qlen, now_ns);
	keep_state(&its_state, state);
	return red_is_at_stake(&its_params, &its_state, qlen);
}

uint32_t tidegate_red_decide(const uint64_t params[9], uint64_t state[3], uint32_t qlen, uint32_t bytes, uint32_t random)
{
	const struct red_params its_params = params_of(params);
	struct red_state its_state = state_of(state);
	uint32_t action = red_decide(&its_params, &its_state, qlen, bytes, random);

	keep_state(&its_state, state);
	return action;
}

void tidegate_red_left_empty(uint64_t state[3], uint64_t now_ns)
{
	struct red_state its_state = state_of(state);

	red_left_empty(&its_state, now_ns);
	keep_state(&its_state, state);
}

uint64_t tidegate_red_base_probability(const uint64_t params[9], uint64_t average)
{
	const struct red_params its_params = params_of(params);

	return red_base_probability(&its_params, average);
}

uint64_t tidegate_red_probability(const uint64_t params[9], uint64_t base, uint32_t count, uint32_t size)
{
	const struct red_params its_params = params_of(params);

	return red_probability(&its_params, base, count, size);
}

uint64_t tidegate_redfavor_begin(const uint64_t guard[3])
{
	const struct redfavor_guard its_guard = guard_of(guard);
	struct redfavor_state state;

	redfavor_begin(&its_guard, &state);
	return state.credit;
}

int tidegate_redfavor_has_place(const uint64_t guard[3], uint32_t qlen, uint32_t size)
{
	const struct redfavor_guard its_guard = guard_of(guard);

	return redfavor_has_place(&its_guard, qlen, size);
}

uint32_t tidegate_redfavor_make_room(const uint64_t guard[3], uint64_t *credit, int needs_room, uint32_t last_standard_bytes)
{
	const struct redfavor_guard its_guard = guard_of(guard);
	struct redfavor_state state = { .credit = *credit };
	uint32_t action = redfavor_make_room(&its_guard, &state, needs_room, last_standard_bytes);

	*credit = state.credit;
	return action;
}

int tidegate_redfavor_sends_protected(const uint64_t guard[3], uint64_t *credit, uint32_t protected_bytes, uint32_t standard_bytes)
{
	const struct redfavor_guard its_guard = guard_of(guard);
	struct redfavor_state state = { .credit = *credit };
	int is_protected = redfavor_sends_protected(&its_guard, &state, protected_bytes, standard_bytes);

	*credit = state.credit;
	return is_protected;
}

uint32_t tidegate_packet_kind(uint8_t protocol, const uint8_t header[OPENING_BYTES])
{
	return packet_kind(protocol, header);
}
