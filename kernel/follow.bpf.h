/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Follows a connection from the end of its handshake to the first byte of the response. It feeds
 * the counts of service.bpf.h, and decides nothing. The function weigh() of service.h picks the
 * connections.
 *
 * The kernel reports the life of a socket by sockops. A program at the interface would see every
 * segment of every connection, also those that TCP does not accept. This one runs when a handshake
 * ends, then until the response begins, and when the state changes.
 *
 * - handshake ends:  BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB, silent
 * - request arrives: BPF_SOCK_OPS_HDR_OPT_LEN_CB of its acknowledgment, waiting
 * - response begins: BPF_SOCK_OPS_HDR_OPT_LEN_CB from tcp_current_mss(), no more
 * - the end, any:    BPF_SOCK_OPS_STATE_CB
 *
 * The first request is acknowledged at once (tcp_event_data_recv(): quick ACKs). A request in
 * pieces waits from its last piece. When the server writes, the kernel asks how long the options of
 * its segments will be. It does so before it knows whether the client's window takes one.
 *
 * The kernel asks also when a router says that a packet was too large, which clients can forge. At
 * that moment usually no process owns the socket, so the report is ignored. If one does, the client
 * loses only its own wait.
 *
 * A segment may have no room for an option: with MPTCP, or with timestamps and three SACK blocks. A
 * client can cause the latter. Then the kernel does not ask. The program misses such a request. It
 * sees such a response by a later segment, or as an end. If it sees no answer at all, the agent
 * gives up the limit.
 */
#ifndef TIDEGATE_FOLLOW_BPF_H
#define TIDEGATE_FOLLOW_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "listener.bpf.h"
#include "rules.bpf.h"
#include "service.bpf.h"
#include "sockopt.bpf.h"
#include "syn_ack.bpf.h"

enum {
	AF_INET = 2,
	US_PER_MS = 1000,
	FOLLOW_FLAGS = BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG,
	/*
	 * The index of a connection that waits no more; find_service() rejects it. A socket's
	 * storage is freed with it. To delete it earlier costs a grace period of RCU tasks trace
	 * (Linux 6.18, bpf_selem_free()).
	 */
	NO_SERVICE = MAX_LISTENERS,
	WAIT_PLACES = 4096,		/* in each way; a power of two */
	WAIT_WAYS = 4,
};

/* The state of a waiting connection, in one cache line. */
struct wait_place {
	__u64 cookie;			/* of the socket that owns it; 0: free */
	struct wait wait;
	__u64 zero[2];
};

_Static_assert(sizeof(struct wait_place) == 64, "a cache line");

/*
 * A table of waiting connections. The socket's cookie finds a place in one of WAIT_WAYS ways.
 * Cookies of one CPU go up by one, 4,096 at a time (gen_cookie_next(), Linux 6.18). So its
 * connections take the places in turn.
 *
 * A place may be taken, by a long wait or by another CPU. Then the connection gets the place of the
 * next way. So open connections fill the ways from the front. Short ones share the first free
 * lines, which stay in a CPU's cache.
 *
 * When all ways are taken, the socket's storage holds the state. To make and free it costs as much
 * as a quarter of all else here.
 *
 * If another program clears the flags, the end of the connection is not reported. Its place is lost
 * until the program is unloaded. With all places lost, only storage is left.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* values begin with a page (array_map_alloc()): each place is one line */
	__uint(max_entries, WAIT_WAYS * WAIT_PLACES);
	__type(key, __u32);
	__type(value, struct wait_place);
} wait_places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wait);
} waits SEC(".maps");

/* A bit for each way in which a place was ever taken. A search ends at the last one. */
__u32 ways_taken = 0;

#define ALL_WAYS ((1U << WAIT_WAYS) - 1)

static __always_inline struct wait_place *place_in(__u32 way, __u64 cookie)
{
	__u32 index = way * WAIT_PLACES | (cookie & (WAIT_PLACES - 1));

	return bpf_map_lookup_elem(&wait_places, &index);
}

/* Cookie of the place's owner; 0: free. */
static __always_inline __u64 owner_of(struct wait_place *place)
{
	return *(volatile __u64 *)&place->cookie;
}

/*
 * The first way where the place has this owner, or WAIT_WAYS. It searches up to the last of `ways`.
 * Not static, so that the verifier walks it once.
 */
__noinline int find_way(__u64 cookie, __u64 owner, __u32 ways)
{
	struct wait_place *place;
	__u32 way;

	for (way = 0; way < WAIT_WAYS && ways >> way; way++) {
		place = place_in(way, cookie);
		if (place && owner_of(place) == owner)
			return way;
	}
	return WAIT_WAYS;
}

/* The place that this socket owns, or NULL. */
static __always_inline struct wait_place *find_own_place(__u64 cookie)
{
	struct wait_place *place = place_in(0, cookie);
	__u32 way;

	if (place && owner_of(place) == cookie)
		return place;
	if (ways_taken < 2)
		return NULL;
	way = find_way(cookie, cookie, ways_taken);
	return way < WAIT_WAYS ? place_in(way, cookie) : NULL;
}

/* Takes the first free place for this socket. NULL if there is none, or another CPU was faster. */
static __always_inline struct wait_place *take_place(__u64 cookie)
{
	__u32 way = find_way(cookie, 0, ALL_WAYS);
	struct wait_place *place = way < WAIT_WAYS ? place_in(way, cookie) : NULL;

	if (!place || !__sync_bool_compare_and_swap(&place->cookie, 0, cookie))
		return NULL;
	if (!(ways_taken & 1U << way))
		__sync_fetch_and_or(&ways_taken, 1U << way);
	return place;
}

/*
 * Makes the state of a connection; NULL without memory. Its socket owns no place, unless its end
 * was not reported (above) and it became a connection again.
 */
static __always_inline struct wait *make_wait(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct wait_place *place = take_place(bpf_get_socket_cookie(ops));

	return place ? &place->wait : bpf_sk_storage_get(&waits, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

/* NULL if this connection is not followed. */
static __always_inline struct wait *find_wait(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct wait_place *place = find_own_place(bpf_get_socket_cookie(ops));

	return place ? &place->wait : bpf_sk_storage_get(&waits, sk, 0, 0);
}

/* Forgets the state of a connection, and frees its place. */
static __always_inline void forget_wait(struct bpf_sock_ops *ops, struct wait *wait)
{
	struct wait_place *place = find_own_place(bpf_get_socket_cookie(ops));

	wait->index = NO_SERVICE;
	/* A full barrier: the next owner writes after everything that was written here. */
	if (place)
		__sync_lock_test_and_set(&place->cookie, 0);
}

/*
 * Reads both families. Otherwise the compiler would merge both loads. The verifier does not accept
 * that pointer as the context.
 */
static __always_inline void local_key(struct bpf_sock_ops *ops, struct listener_key *key)
{
	__u32 ipv4 = ops->local_ip4, last = ops->local_ip6[3];

	asm volatile("" : "+r"(ipv4), "+r"(last));
	if (ops->family == AF_INET) {
		key->address.word[2] = bpf_htonl(0xffff);
		key->address.word[3] = ipv4;
	} else {
		/* Word by word: the kernel allows no load of eight bytes here. */
		key->address.word[0] = *(volatile __u32 *)&ops->local_ip6[0];
		key->address.word[1] = *(volatile __u32 *)&ops->local_ip6[1];
		key->address.word[2] = *(volatile __u32 *)&ops->local_ip6[2];
		key->address.word[3] = last;
	}
	key->port = bpf_htons(ops->local_port);
}

/* Bytes of a request. The kernel also counts a FIN. */
static __always_inline __u64 received_by(struct bpf_sock_ops *ops)
{
	__u64 received = ops->bytes_received;

	return received && ops->state == SOCKET_CLOSE_WAIT ? received - 1 : received;
}

/* Finds the server of a listener by its rule. */
static __always_inline bool find_rule_service(__u32 index, __u32 *service)
{
	struct listener_rule *rule = bpf_map_lookup_elem(&rules, &index);

	if (!rule || rule->policy.trigger == TRIGGER_QUEUE)
		return false;
	*service = rule->service;
	return true;
}

/*
 * The duration of the handshake; 0: unknown. After a SYN cookie the kernel takes it from the
 * timestamps, in whole ms. Cookies use their last bits. For its own cookies the guard knows the
 * time.
 */
static __always_inline __u32 read_handshake_us(struct bpf_sock_ops *ops, __u64 now)
{
	__u32 us = ops->srtt_us >> 3;

	/* The last sequence number sent is the initial one. */
	return us % US_PER_MS ? us : read_cookie_age_us(ops->snd_nxt - 1, now);
}

static __always_inline void begin_wait(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct listener_key key = {};
	const struct pace *pace;
	struct service *service;
	struct found_index found;
	struct wait *wait;
	__u32 index, us, weight;
	__u64 now;

	if (!sk || bpf_get_netns_cookie(ops) != guarded_netns_cookie)
		return;
	local_key(ops, &key);
	if (!find_index(&key, !is_mapped(&key.address), &found) || !find_rule_service(found.index, &index) ||
	    !find_service(index, &service, &pace))
		return;
	weight = weigh(service, pace, bpf_get_prandom_u32());
	if (!weight)
		return;
	now = bpf_ktime_get_ns();
	us = read_handshake_us(ops, now);
	wait = make_wait(ops, sk);
	if (!wait)
		return; /* counts as served */
	/* The socket may have been another connection before (connect(2) with AF_UNSPEC). */
	wait->received = 0;
	wait->turns = 0;
	wait->index = index;
	wait->calls = FOLLOW_FLAGS & ~ops->bpf_sock_ops_cb_flags;
	bpf_spin_lock(&service->lock);
	begin(service, pace, wait, weight, us, now);
	bpf_spin_unlock(&service->lock);
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | wait->calls);
}

/* Ends the wait of a connection. The kernel reports nothing more of it. */
static __always_inline void end_wait(struct bpf_sock_ops *ops, bool is_answered)
{
	struct bpf_sock *sk = ops->sk;
	const struct pace *pace;
	struct service *service;
	struct wait *wait;
	__u32 bucket;
	__u64 now;

	if (!sk)
		return;
	wait = find_wait(ops, sk);
	if (!wait || !find_service(wait->index, &service, &pace))
		return;
	now = bpf_ktime_get_ns();
	bucket = bucket_of((now - wait->since_ns) / NS_PER_US);
	bpf_spin_lock(&service->lock);
	end(service, pace, wait, is_answered, bucket, now);
	bpf_spin_unlock(&service->lock);
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~wait->calls);
	forget_wait(ops, wait);
}

/* More of a request has arrived. */
static __always_inline void continue_wait(struct bpf_sock_ops *ops)
{
	__u64 received = received_by(ops), now;
	struct bpf_sock *sk = ops->sk;
	const struct pace *pace;
	struct service *service;
	struct wait *wait;

	if (!sk || !received)
		return;
	wait = find_wait(ops, sk);
	if (!wait || wait->received == received || !find_service(wait->index, &service, &pace))
		return;
	now = bpf_ktime_get_ns();
	wait->received = received;
	bpf_spin_lock(&service->lock);
	go_on(service, pace, wait, now);
	bpf_spin_unlock(&service->lock);
}

/* True when a process is in a system call on the socket. */
static __always_inline bool is_owned(struct bpf_sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	return tcp && tcp->inet_conn.icsk_inet.sk.sk_lock.owned;
}

/*
 * The kernel asks for the length of a segment's options. It asks when the server writes, and for
 * each segment that is about to leave.
 */
static __always_inline void on_options(struct bpf_sock_ops *ops)
{
	bool is_write = ops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS;

	if (ops->skb_len || (is_write && ops->sk && is_owned(ops->sk)))
		end_wait(ops, true);
	else if (!is_write)
		continue_wait(ops);
}

/* A client that has closed its half may still wait for the response. */
static __always_inline void on_state(struct bpf_sock_ops *ops)
{
	__u32 state = ops->args[1];

	if (state != SOCKET_ESTABLISHED && state != SOCKET_CLOSE_WAIT)
		end_wait(ops, false);
}

#endif
