/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Copies a kernel listener into struct listener_load, as it is at this moment. It decides nothing.
 */
#ifndef TIDEGATE_LISTENER_BPF_H
#define TIDEGATE_LISTENER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "lookup.bpf.h"
#include "segment.bpf.h"
#include "verdict.h"
#include "sockopt.bpf.h"

enum {
	SOCKET_ESTABLISHED = 1,		/* TCP_ESTABLISHED of include/net/tcp_states.h */
	SOCKET_TIME_WAIT = 6,		/* TCP_TIME_WAIT */
	SOCKET_CLOSE_WAIT = 8,		/* TCP_CLOSE_WAIT */
	SOCKET_LISTEN = 10,		/* TCP_LISTEN */
};

enum found {
	FOUND_LISTENER,
	FOUND_NOTHING,
	FOUND_OTHER,			/* a connection or a request socket: the kernel knows it */
};

/* No connection has this source port, so a lookup with it finds listeners only. */
#define NO_PORT 0

/* A copy of a listener. read_listener() sets only the queues of its load. */
struct listener {
	struct listener_load load;
	__u64 socket;			/* its address, which tells listeners apart */
	__u32 family;			/* of the socket: AF_INET6 also for IPv4 to a dual-stack one */
	bool is_behind_time_wait;	/* the SYN reuses the four-tuple of a connection in TIME_WAIT */
};

static __always_inline enum found read_listener(const struct tcp_sock *tcp, struct listener *listener)
{
	const struct sock *sk = &tcp->inet_conn.icsk_inet.sk;

	if (sk->__sk_common.skc_state != SOCKET_LISTEN)
		return FOUND_OTHER;
	listener->load.accept_qlen = sk->sk_ack_backlog;
	listener->load.accept_limit = sk->sk_max_ack_backlog;
	listener->load.syn_qlen = tcp->inet_conn.icsk_accept_queue.qlen.counter;
	listener->load.syn_limit = sk->sk_max_ack_backlog;
	listener->family = sk->__sk_common.skc_family;
	listener->socket = (__u64)tcp;
	return FOUND_LISTENER;
}

/* Copies the load of a listening socket, and releases it. */
static __always_inline enum found take_listener(struct sock_common *socket, struct listener *listener)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(socket);
	enum found found = tcp ? read_listener(tcp, listener) : FOUND_OTHER;

	bpf_sk_release(socket);
	return found;
}

/*
 * True when a SYN can replace this socket. It cannot while the socket waits for the client's FIN
 * (FIN-WAIT-2).
 */
static __always_inline bool is_in_time_wait(struct sock_common *socket)
{
	struct tcp_timewait_sock *time_wait = bpf_skc_to_tcp_timewait_sock(socket);

	return time_wait && time_wait->tw_sk.tw_substate == SOCKET_TIME_WAIT;
}

/*
 * Finds the socket that the kernel would give this SYN to. Copies its load if it listens.
 *
 * With SO_REUSEPORT the SYN's hash selects the member of the group, as in the kernel. A BPF
 * selector of the group does not run. If the SYN reuses the four-tuple of a connection in
 * TIME_WAIT, the result is any member.
 */
static __always_inline enum found find_listener(void *ctx, const struct segment *segment, struct listener *listener)
{
	struct sock_common *socket = lookup_socket(ctx, segment);

	if (socket && is_in_time_wait(socket)) {
		bpf_sk_release(socket);
		listener->is_behind_time_wait = true;
		socket = lookup_socket_from(ctx, segment, NO_PORT);
	}
	return socket ? take_listener(socket, listener) : FOUND_NOTHING;
}

/* Reads the queues of a listener that the verifier knows only as a sock. */
static __always_inline void read_load(struct sock *sk, struct listener_load *load)
{
	load->accept_qlen = BPF_CORE_READ(sk, sk_ack_backlog);
	load->accept_limit = BPF_CORE_READ(sk, sk_max_ack_backlog);
	load->syn_qlen = BPF_CORE_READ((struct tcp_sock *)sk, inet_conn.icsk_accept_queue.qlen.counter);
	load->syn_limit = load->accept_limit;
}

/* The handshake that a segment with ACK may end. */
enum handshake {
	HANDSHAKE_NONE,			/* none: the segment is of a connection, or nothing listens */
	HANDSHAKE_REQUEST,		/* one with a request socket */
	HANDSHAKE_COOKIE,		/* one by SYN cookie, or the segment belongs to nothing */
};

/* Finds the handshake that a segment with ACK would complete. Copies the load of its listener. */
static __always_inline enum handshake find_handshake(void *ctx, const struct segment *segment, struct listener_load *load)
{
	struct sock_common *socket = lookup_socket(ctx, segment);
	enum handshake handshake = HANDSHAKE_NONE;
	struct tcp_request_sock *request;
	struct listener listener = {};
	struct tcp_sock *tcp;

	if (!socket)
		return HANDSHAKE_NONE;
	request = bpf_skc_to_tcp_request_sock(socket);
	if (request) {
		read_load(BPF_CORE_READ(request, req.req.__req_common.skc_listener), load);
		handshake = HANDSHAKE_REQUEST;
	} else {
		tcp = bpf_skc_to_tcp_sock(socket);
		if (tcp && read_listener(tcp, &listener) == FOUND_LISTENER) {
			*load = listener.load;
			handshake = HANDSHAKE_COOKIE;
		}
	}
	bpf_sk_release(socket);
	return handshake;
}

/*
 * Finds the established connection of a FIN, and copies its state. `on_fin` changes only if the
 * server has asked for one.
 */
static __always_inline bool find_connection(void *ctx, const struct segment *segment, struct fin *fin, enum on_fin *on_fin)
{
	struct sock_common *socket = lookup_socket(ctx, segment);
	struct tcp_sock *tcp;
	bool found = false;
	__u32 *wanted;

	if (!socket)
		return false;
	tcp = bpf_skc_to_tcp_sock(socket);
	if (tcp && tcp->inet_conn.icsk_inet.sk.__sk_common.skc_state == SOCKET_ESTABLISHED) {
		fin->payload = segment->payload_length;
		fin->ahead = segment->seq - tcp->rcv_nxt;
		fin->unread = tcp->rcv_nxt - tcp->copied_seq;
		fin->unacknowledged = tcp->write_seq - segment->ack;
		wanted = bpf_sk_storage_get(&asked, tcp, 0, 0);
		if (wanted)
			*on_fin = *wanted;
		found = true;
	}
	bpf_sk_release(socket);
	return found;
}

#endif
