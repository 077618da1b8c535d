/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Keeps the room of accept queues for all CPUs and interfaces. It reads frames and writes the map;
 * room.h decides.
 */
#ifndef TIDEGATE_ROOM_BPF_H
#define TIDEGATE_ROOM_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "verdict.h"
#include "segment.bpf.h"
#include "listener.bpf.h"
#include "rules.bpf.h"
#include "armed.bpf.h"
#include "room.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, __u32);
	__type(value, struct room);
} rooms SEC(".maps");

/* Notes the queues that a SYN has seen. It is not inline: see decide_before_server(). */
static __noinline int note_room(__u32 index, const struct listener *listener, const struct listener_policy *policy)
{
	struct room *room = bpf_map_lookup_elem(&rooms, &index);
	__u64 places = accept_places_left(policy, &listener->load), word, next;
	bool is_same;

	if (!room)
		return 0;
	is_same = room->socket == listener->socket;
	word = *(volatile __u64 *)&room->word;
	next = next_room(word, is_same, may_answer(policy, VERDICT_COOKIE), places, bpf_ktime_get_coarse_ns());
	/*
	 * If another CPU was first, its word stays, and the next SYN tries again. That holds for a
	 * word of another listener, too.
	 */
	if (next != word && !__sync_bool_compare_and_swap(&room->word, word, next))
		return 0;
	if (!is_same)
		room->socket = listener->socket;
	return 0;
}

/*
 * Reads the destination of a frame in which find_plain_tcp() has found a header. False is only for
 * the verifier.
 */
static __always_inline bool read_plain_destination(const struct frame *frame, struct listener_key *key, bool *is_ipv6)
{
	const struct ethernet_header *ethernet = frame_at(frame, 0, sizeof(*ethernet));
	const struct tcp_header *tcp;
	const struct ipv4_header *ipv4;
	const struct ipv6_header *ipv6;
	__u32 offset = sizeof(*ethernet);

	if (!ethernet)
		return false;
	*is_ipv6 = ethernet->ethertype == bpf_htons(ETHERTYPE_IPV6);
	if (*is_ipv6) {
		ipv6 = frame_at(frame, offset, sizeof(*ipv6));
		tcp = frame_at(frame, offset + sizeof(*ipv6), sizeof(*tcp));
		if (!ipv6 || !tcp)
			return false;
		__builtin_memcpy(&key->address, ipv6->destination, sizeof(key->address));
	} else {
		ipv4 = frame_at(frame, offset, sizeof(*ipv4));
		tcp = frame_at(frame, offset + sizeof(*ipv4), sizeof(*tcp));
		if (!ipv4 || !tcp)
			return false;
		key->address.word[2] = bpf_htonl(0xffff);
		key->address.word[3] = ipv4->destination;
	}
	key->port = tcp->destination;
	return true;
}

/*
 * True when a plain frame may pass without a lookup of its socket. It takes a place of its guarded
 * listener. False when `hints` does not name the listener, or a lookup is needed. After the
 * deadline no frame needs one.
 */
static __always_inline bool finds_room(const struct frame *frame, bool is_tc)
{
	struct listener_key key = {};
	struct found_index found = {};
	__u64 now = bpf_ktime_get_coarse_ns(), word;
	struct path_stats *path;
	bool is_ipv6 = false;
	struct room *room;

	if (!is_before(&armed_until_ns, now))
		return true;
	if (!read_plain_destination(frame, &key, &is_ipv6) || !find_hint(&key, is_ipv6, &found))
		return false;
	room = bpf_map_lookup_elem(&rooms, &found.index);
	if (!room)
		return false;
	word = *(volatile __u64 *)&room->word;
	/* A frame whose place another CPU took needs a lookup. */
	if (!has_room(word, is_tc, now) || !__sync_bool_compare_and_swap(&room->word, word, word - 1))
		return false;
	path = path_counters();
	if (path)
		path->had_room++;
	return true;
}

#endif
