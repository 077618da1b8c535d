/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A connection from the handshake's end to the first byte of the response, for the counts of
 * service.bpf.h. The kernel tells of a socket's life (sockops): a program that looks at frames
 * would see segments that TCP does not take, and every segment of every connection. This one is
 * called when a handshake ends, until the response begins, and when the state changes.
 *
 * weigh() of service.h picks whom it follows.
 *
 *	handshake ends		BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB: silent
 *	request arrives		BPF_SOCK_OPS_HDR_OPT_LEN_CB of its acknowledgment: waiting
 *	response begins		BPF_SOCK_OPS_HDR_OPT_LEN_CB from tcp_current_mss(): no more
 *	the end, any		BPF_SOCK_OPS_STATE_CB
 *
 * The first request is acknowledged at once (tcp_event_data_recv(): quick ACKs). One in pieces
 * waits from the last of them. When the server writes, the kernel asks how long the options of its
 * segments will be, before it knows whether the client's window takes one. It asks as well when a
 * router says that a packet was too large, which clients can forge. No process has the socket then,
 * or one is in a system call on it just then, and loses nothing but a wait of its own.
 *
 * A segment may have no room for an option: with timestamps and three SACK blocks, which a client
 * can bring about, or with MPTCP. Then the kernel does not ask. Such a request is not seen, and
 * such a response by a later segment, or as an end. Where no answer is seen at all the agent gives
 * up the limit.
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
	 * Of a connection that waits no more; find_service() knows no such index. Storage that it
	 * has goes with the socket: what is deleted before waits for a grace period of RCU tasks
	 * trace (Linux 6.18, bpf_selem_free()).
	 */
	NO_SERVICE = MAX_LISTENERS,
	WAIT_PLACES = 4096,		/* of one way; a power of two */
	WAIT_WAYS = 4,
};

/* What is known of a connection for as long as it waits: a cache line. */
struct wait_place {
	__u64 cookie;			/* of the socket whose it is; 0: nobody's */
	struct wait wait;
	__u64 zero[2];
};

_Static_assert(sizeof(struct wait_place) == 64, "a cache line");

/*
 * A place is found by the socket's cookie. On one CPU these go up by one, 4,096 at a time
 * (gen_cookie_next(), Linux 6.18), so that its connections take the places in turn. One may be
 * taken already: somebody has waited there for thousands of them, or another CPU is at the same
 * part of its own. Then there is another one in the next way. So who holds connections open fills
 * the ways from the front, and those that come and go share the first lines behind, which stay in a
 * CPU's cache. Where all ways are taken what is known stands in the socket's storage. To make and
 * to free that costs as much as a quarter of all else that is done here.
 *
 * If another program takes back our flags, we are not told of the connection's end. Its place is
 * lost for as long as the program is loaded. With all of them lost it is as if there were no table.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* so that its values begin with a page (array_map_alloc()), and each place is one line */
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

/* A bit for each way in which somebody has taken a place: nobody looks behind the last. */
__u32 ways_taken = 0;

#define ALL_WAYS ((1U << WAIT_WAYS) - 1)

static __always_inline struct wait_place *place_in(__u32 way, __u64 cookie)
{
	__u32 index = way * WAIT_PLACES | (cookie & (WAIT_PLACES - 1));

	return bpf_map_lookup_elem(&wait_places, &index);
}

/* Whose place it is. */
static __always_inline __u64 owner_of(struct wait_place *place)
{
	return *(volatile __u64 *)&place->cookie;
}

/*
 * The first way in which the place is of this owner, WAIT_WAYS if none is; of those up to the last
 * of `ways`. Not static, so that the verifier walks it once.
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

/* The place that is this socket's; NULL if none is. */
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

/*
 * Of nobody's places the one in front, which is this socket's then; NULL if there is none, or
 * another CPU was faster.
 */
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
 * Of a socket that has none, but for one whose end we were not told of (above), if it should ever
 * be a connection again. NULL if there is no memory.
 */
static __always_inline struct wait *make_wait(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct wait_place *place = take_place(bpf_get_socket_cookie(ops));

	return place ? &place->wait : bpf_sk_storage_get(&waits, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

/* NULL if we know nothing of this connection. */
static __always_inline struct wait *find_wait(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct wait_place *place = find_own_place(bpf_get_socket_cookie(ops));

	return place ? &place->wait : bpf_sk_storage_get(&waits, sk, 0, 0);
}

/* A connection waits no more. */
static __always_inline void forget_wait(struct bpf_sock_ops *ops, struct wait *wait)
{
	struct wait_place *place = find_own_place(bpf_get_socket_cookie(ops));

	wait->index = NO_SERVICE;
	/* A full barrier: all that we wrote here comes before what the next owner writes. */
	if (place)
		__sync_lock_test_and_set(&place->cookie, 0);
}

/*
 * Read for both families: the compiler would make one load of two, of a pointer that the verifier
 * does not know as the context's.
 */
static __always_inline void local_key(struct bpf_sock_ops *ops, struct listener_key *key)
{
	__u32 ipv4 = ops->local_ip4, last = ops->local_ip6[3];

	asm volatile("" : "+r"(ipv4), "+r"(last));
	if (ops->family == AF_INET) {
		key->address.word[2] = bpf_htonl(0xffff);
		key->address.word[3] = ipv4;
	} else {
		/* Word by word: the kernel gives no eight bytes of an address. */
		key->address.word[0] = *(volatile __u32 *)&ops->local_ip6[0];
		key->address.word[1] = *(volatile __u32 *)&ops->local_ip6[1];
		key->address.word[2] = *(volatile __u32 *)&ops->local_ip6[2];
		key->address.word[3] = last;
	}
	key->port = bpf_htons(ops->local_port);
}

/* Bytes of a request: the kernel counts a FIN among them. */
static __always_inline __u64 received_by(struct bpf_sock_ops *ops)
{
	__u64 received = ops->bytes_received;

	return received && ops->state == SOCKET_CLOSE_WAIT ? received - 1 : received;
}

/* Which server a listener's connections wait for: that of its rule. */
static __always_inline bool find_rule_service(__u32 index, __u32 *service)
{
	struct listener_rule *rule = bpf_map_lookup_elem(&rules, &index);

	if (!rule || rule->policy.trigger == TRIGGER_QUEUE)
		return false;
	*service = rule->service;
	return true;
}

/*
 * How long the handshake took; 0 if that is not known. After a SYN cookie the kernel takes it from
 * the timestamps, in whole ms, of which cookies use the last bits. When one of ours was sent we
 * know.
 */
static __always_inline __u32 read_handshake_us(struct bpf_sock_ops *ops, __u64 now)
{
	__u32 us = ops->srtt_us >> 3;

	/* What we sent last was its initial sequence number. */
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
		return; /* as if it were served */
	/* A socket may have been another connection before (connect(2) with AF_UNSPEC). */
	wait->received = 0;
	wait->turns = 0;
	wait->index = index;
	wait->calls = FOLLOW_FLAGS & ~ops->bpf_sock_ops_cb_flags;
	bpf_spin_lock(&service->lock);
	begin(service, pace, wait, weight, us, now);
	bpf_spin_unlock(&service->lock);
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | wait->calls);
}

/* The last time that we ask about this connection. */
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

/* More of a request has come. */
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

/* Whether a process is in a system call on the socket. */
static __always_inline bool is_owned(struct bpf_sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	return tcp && tcp->inet_conn.icsk_inet.sk.sk_lock.owned;
}

/*
 * How long may the options of a segment be? Asked when the server writes, and for each segment that
 * is about to leave.
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
