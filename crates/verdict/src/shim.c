/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel/verdict.h, kernel/cookie.h and kernel/room.h with numbers for arguments, so that no struct layout is written down a second time: the fields of struct
 * listener_policy and struct listener_load, in their order.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/cdefs.h>
#include "cookie.h"
#include "room.h"
#include "verdict.h"

static struct listener_policy policy_of(const uint32_t numbers[12])
{
	return (struct listener_policy){
		.full = numbers[0],
		.overbook_percent = numbers[1],
		.rate = { .per_s = numbers[2], .burst = numbers[3] },
		.refused_permille = numbers[4],
		.syn_when_full = numbers[5],
		.ack_when_full = numbers[6],
		.on_fin = numbers[7],
		.reserved_slots = numbers[8],
		.trigger = numbers[9],
		.trigger_at = numbers[10],
		.syn_when_syn_queue_full = numbers[11],
	};
}

static struct listener_load load_of(const uint32_t numbers[9])
{
	return (struct listener_load){
		.accept_qlen = numbers[0],
		.accept_limit = numbers[1],
		.syn_qlen = numbers[2],
		.syn_limit = numbers[3],
		.unserved = numbers[4],
		.unserved_limit = numbers[5],
		.promised = numbers[6],
		.sojourn_us = numbers[7],
		.answers_per_s = numbers[8],
	};
}

uint32_t tidegate_admit_syn(const uint32_t policy[12], const uint32_t load[9], uint64_t now_ns, uint64_t schedule_ns,
			    uint32_t hash, uint32_t is_reserved, uint32_t is_behind_time_wait)
{
	const struct attempt attempt = {
		.now_ns = now_ns,
		.schedule_ns = schedule_ns,
		.hash = hash,
		.is_reserved = is_reserved,
		.is_behind_time_wait = is_behind_time_wait,
	};
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return admit_syn(&its_policy, &its_load, &attempt);
}

uint32_t tidegate_enter_syn_queue(const uint32_t policy[12], const uint32_t load[9], uint32_t is_behind_time_wait)
{
	const struct attempt attempt = { .is_behind_time_wait = is_behind_time_wait };
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return enter_syn_queue(&its_policy, &its_load, &attempt);
}

uint32_t tidegate_may_answer(const uint32_t policy[12], uint32_t verdict)
{
	const struct listener_policy its_policy = policy_of(policy);

	return may_answer(&its_policy, verdict);
}

uint32_t tidegate_accept_queue_is_full(const uint32_t load[9])
{
	const struct listener_load its_load = load_of(load);

	return accept_queue_is_full(&its_load);
}

uint32_t tidegate_syn_queue_is_full(const uint32_t load[9])
{
	const struct listener_load its_load = load_of(load);

	return syn_queue_is_full(&its_load);
}

uint32_t tidegate_has_ack_stage(const uint32_t policy[12])
{
	const struct listener_policy its_policy = policy_of(policy);

	return has_ack_stage(&its_policy);
}

uint64_t tidegate_accept_places_left(const uint32_t policy[12], const uint32_t load[9])
{
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return accept_places_left(&its_policy, &its_load);
}

uint32_t tidegate_accept_queue_may_overflow(const uint32_t policy[12], const uint32_t load[9])
{
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return accept_queue_may_overflow(&its_policy, &its_load);
}

uint32_t tidegate_is_refused_by_server_alone(const uint32_t policy[12], const uint32_t load[9], uint32_t is_reserved)
{
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return is_refused_by_server_alone(&its_policy, &its_load, is_reserved);
}

uint64_t tidegate_next_schedule(uint32_t per_s, uint32_t burst, uint64_t now_ns, uint64_t schedule_ns)
{
	const struct rate rate = { .per_s = per_s, .burst = burst };

	return next_schedule(&rate, now_ns, schedule_ns);
}

uint32_t tidegate_admit_ack(const uint32_t policy[12], const uint32_t load[9], uint32_t is_reserved)
{
	const struct listener_policy its_policy = policy_of(policy);
	const struct listener_load its_load = load_of(load);

	return admit_ack(&its_policy, &its_load, is_reserved);
}

uint32_t tidegate_admit_fin(const uint32_t policy[12], uint32_t payload, uint32_t ahead, uint32_t unread,
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

/* `flow`: addresses as eight words in wire order, both ports in wire order, the client's sequence number. */
static struct cookie_flow flow_of(const uint32_t flow[11])
{
	return (struct cookie_flow){
		.source = { flow[0], flow[1], flow[2], flow[3] },
		.destination = { flow[4], flow[5], flow[6], flow[7] },
		.source_port = flow[8],
		.destination_port = flow[9],
		.client_isn = flow[10],
	};
}

uint32_t tidegate_make_cookie(const uint64_t key[2], const uint32_t flow[11], const uint8_t options[3], uint32_t period)
{
	const struct cookie_key its_key = { .word = { key[0], key[1] } };
	const struct cookie_flow its_flow = flow_of(flow);
	const struct cookie_options its_options = {
		.mss_index = options[0],
		.wscale = options[1],
		.has_sack = options[2],
	};

	return make_cookie(&its_key, &its_flow, &its_options, period);
}

int tidegate_open_cookie(const uint64_t key[2], const uint32_t flow[11], uint32_t cookie, uint32_t period, uint8_t options[3])
{
	const struct cookie_key its_key = { .word = { key[0], key[1] } };
	const struct cookie_flow its_flow = flow_of(flow);
	struct cookie_options its_options = { 0 };

	if (!open_cookie(&its_key, &its_flow, cookie, period, &its_options))
		return 0;
	options[0] = its_options.mss_index;
	options[1] = its_options.wscale;
	options[2] = its_options.has_sack;
	return 1;
}

uint32_t tidegate_cookie_place(uint32_t cookie)
{
	return cookie_place(cookie);
}

uint64_t tidegate_stamp_cookie(uint32_t cookie, uint64_t now_ns)
{
	return stamp_cookie(cookie, now_ns);
}

uint32_t tidegate_cookie_age_us(uint64_t stamp, uint32_t cookie, uint64_t now_ns)
{
	return cookie_age_us(stamp, cookie, now_ns);
}

uint16_t tidegate_cookie_mss(uint8_t index, int is_ipv6)
{
	return cookie_mss(index, is_ipv6);
}

uint8_t tidegate_cookie_mss_index(uint16_t mss, int is_ipv6)
{
	return cookie_mss_index(mss, is_ipv6);
}

uint64_t tidegate_cookie_hash(const uint64_t key[2], const uint32_t flow[11], uint8_t said, uint32_t period, uint32_t domain)
{
	const struct cookie_key its_key = { .word = { key[0], key[1] } };
	const struct cookie_flow its_flow = flow_of(flow);
	struct siphash state;

	hash_cookie_flow(&its_key, &its_flow, &state);
	return end_cookie_hash(&state, said, period, domain);
}

uint64_t tidegate_next_room(uint64_t word, bool is_same, bool has_cookies, uint64_t places, uint64_t now_ns)
{
	return next_room(word, is_same, has_cookies, places, now_ns);
}

bool tidegate_has_room(uint64_t word, bool is_tc, uint64_t now_ns)
{
	return has_room(word, is_tc, now_ns);
}
