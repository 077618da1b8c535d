/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A kernel listener -> struct listener_load, exactly as it is at this moment.
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
	FOUND_OTHER,			/* established or a request socket: the kernel knows it already */
};

/* The source port of nobody, with which only listeners are found. */
#define NO_PORT 0

/* A listener as copied from the kernel. Of its load read_listener() sets the queues only. */
struct listener {
	struct listener_load load;
	__u64 socket;			/* its address, to tell it from another one */
	__u32 family;			/* of the socket: AF_INET6 when a dual-stack one serves IPv4 */
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

/* Copies the load of a socket that listens, and lets it go. */
static __always_inline enum found take_listener(struct sock_common *socket, struct listener *listener)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(socket);
	enum found found = tcp ? read_listener(tcp, listener) : FOUND_OTHER;

	bpf_sk_release(socket);
	return found;
}

/*
 * Whether a SYN can take the place of this one; one that still waits for its client's FIN is in its
 * way (FIN-WAIT-2).
 */
static __always_inline bool is_in_time_wait(struct sock_common *socket)
{
	struct tcp_timewait_sock *time_wait = bpf_skc_to_tcp_timewait_sock(socket);

	return time_wait && time_wait->tw_sk.tw_substate == SOCKET_TIME_WAIT;
}

/*
 * Finds the socket that the kernel would give this SYN to, and copies its load if it listens. With
 * SO_REUSEPORT that is the member of the group that the SYN's hash selects, as in the kernel (a BPF
 * selector of the group is not run), but for a SYN that reuses the four-tuple of a connection in
 * TIME_WAIT: then any member is.
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

/*
 * The queues of the listener of a request socket, whose type the verifier does not know to be more
 * than a sock.
 */
static __always_inline void read_load(struct sock *sk, struct listener_load *load)
{
	load->accept_qlen = BPF_CORE_READ(sk, sk_ack_backlog);
	load->accept_limit = BPF_CORE_READ(sk, sk_max_ack_backlog);
	load->syn_qlen = BPF_CORE_READ((struct tcp_sock *)sk, inet_conn.icsk_accept_queue.qlen.counter);
	load->syn_limit = load->accept_limit;
}

/* What a segment with ACK may end. */
enum handshake {
	HANDSHAKE_NONE,			/* it is of a connection, or nothing listens */
	HANDSHAKE_REQUEST,		/* there is a request socket */
	HANDSHAKE_COOKIE,		/* the SYN was answered with a cookie, or the segment belongs to nothing */
};

/*
 * Finds the handshake that a segment with ACK would complete, and copies the load of its listener.
 */
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
 * Finds the established connection that a FIN is for, copies its state, and lets `on_fin` be what
 * its server has asked for, if it has.
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
