// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Telemetry of all listeners of the host, in every network namespace: what became of their SYNs and
 * of the ends of their handshakes, and how long connections wait for accept(2). Only reads; nothing
 * here decides, and nothing runs for data.
 *
 * Each hook may be missing: the agent loads those whose functions this kernel has. The causes are
 * those of [Shu05] section 2.1.1, as today's kernel decides them.
 */
/*
 * Arguments of the kernel's functions stand in their order, also those that we do not read; of the
 * headers we need a part.
 */
#pragma clang diagnostic ignored "-Wunused-parameter"
#pragma clang diagnostic ignored "-Wunused-function"

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "verdict.h"
#include "segment.bpf.h"
#include "listener.bpf.h"
#include "histogram.h"

enum {
	MAX_WATCHED = 4096,		/* listeners; beyond, the least recently used is forgotten. Also in crates/watch */
	MAX_WAITING = 65536,		/* connections in accept queues whose start is remembered */
	MAX_UNKEPT = 32768,		/* SYNs that are remembered although the kernel kept nothing of them */
	NS_PER_US = 1000,
	SYNCOOKIES_ALWAYS = 2,
	INET6 = 10,			/* AF_INET6 */
};

/* Which listener; what the agent finds its name, owner and cgroup by. */
struct listener_identity {
	__u64 cookie;			/* of the socket; never used again */
	__u64 cgroup_id;		/* version 2, where the socket was made; 0 is unknown */
	__u64 socket_inode;		/* 0: no file, as the kernel's own */
	struct address address;		/* that it is bound to */
	__u32 netns_inode;
	__u16 port;			/* host order */
	__u8 is_ipv6;
	__u8 is_v6only;
};

/* Of one listener since it is watched. */
struct listener_watch {
	/*
	 * syns = answered + cookies + the four ways to be dropped: listenq_full_at_syn,
	 * synq_full_dropped, synq_3_4_full, other
	 */
	__u64 syns;			/* for a new handshake */
	__u64 answered;			/* by SYN/ACK, with a request socket */
	__u64 cookies;			/* by SYN cookie */
	__u64 listenq_full_at_syn;	/* dropped: the accept queue was full */
	__u64 synq_full_dropped;	/* dropped: the SYN queue was full, cookies off */
	__u64 synq_full_cookie;		/* of `cookies`: the SYN queue was full */
	__u64 synq_3_4_full;		/* dropped: less than a quarter of tcp_max_syn_backlog was left, cookies off */
	__u64 syns_dropped_otherwise;	/* no memory, no route, a security module */
	__u64 syns_repeated;		/* of `syns`: the kernel had kept nothing of an earlier one */
	__u64 syns_of_requests;		/* beside `syns`: repeated for a request socket that is there */
	/* Segments that would end a handshake and were dropped. */
	__u64 listenq_overflow;		/* the accept queue was full */
	__u64 listenq_overflow_acks;	/* of these, without data and FIN: [Shu05] table 4.1 */
	__u64 ends_dropped_otherwise;
	__u64 enqueued;			/* into the accept queue */
	__u64 accepted;			/* by accept(2) */
	__u64 sojourn_unknown;		/* of `accepted`: enqueued before we watched, or forgotten */
	__u64 sojourn_sum_us;
	__u64 lengths[BUCKETS];		/* of the accept queue before a connection came into it */
	__u64 sojourns_us[BUCKETS];	/* from then until accept(2) took it */
};

_Static_assert(sizeof(struct listener_watch) == (17 + 2 * BUCKETS) * sizeof(__u64), "user space reads raw words");

struct watched {
	struct listener_identity who;
	struct listener_watch watch;
};

/* A listener as it is now; and, after the last, something that is none. */
struct listed {
	struct listener_identity who;
	struct listener_load load;
	__u32 drops;			/* SYNs and ends of handshakes since it listens, for whatever cause; may wrap */
	__u32 is_listener;
};

enum syn_answer {
	ANSWER_NONE,
	ANSWER_SYN_ACK,
	ANSWER_COOKIE,
};

/*
 * The SYN that this CPU is deciding on: softirqs are off from the start of tcp_conn_request() to
 * its end.
 */
struct syn_under_way {
	__u64 listener;			/* 0: none */
	struct listener_load load;
	__u32 answer;			/* enum syn_answer */
	__u32 zero;
};

/* A SYN; the same for every repetition. */
struct syn_identity {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__be32 seq;
	__u32 netns_inode;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_WATCHED);
	__type(key, __u64);		/* the listener's cookie */
	__type(value, struct watched);
} watched SEC(".maps");

/*
 * When a connection came into the accept queue; the address of a socket is another one's only after
 * it was accepted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_WAITING);
	__type(key, __u64);		/* address of its socket */
	__type(value, __u64);		/* ns, monotonic */
} waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_UNKEPT);
	__type(key, struct syn_identity);
	__type(value, __u32);		/* means nothing */
} unkept_syns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_under_way);
} syns_under_way SEC(".maps");

/*
 * Cookie of the connection that on_hashdance() counted last on this CPU; softirqs are off from
 * there to on_enqueue().
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_enqueue SEC(".maps");

/* Too large for the stack. */
static const struct watched nothing_yet;

const struct listed no_listener;

static __always_inline void count(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

static __always_inline void count_in(__u64 *histogram, __u64 value)
{
	count(&histogram[bucket_of(value)]);
}

static __always_inline struct address mapped_ipv4(__be32 ipv4)
{
	return (struct address){ .word = { 0, 0, bpf_htonl(0xffff), ipv4 } };
}

static __always_inline void identify(struct sock *sk, __u64 cookie, struct listener_identity *who)
{
	struct socket_alloc *file;

	who->cookie = cookie;
	who->netns_inode = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	who->port = BPF_CORE_READ(sk, __sk_common.skc_num);
	who->address = mapped_ipv4(BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
	who->is_ipv6 = BPF_CORE_READ(sk, __sk_common.skc_family) == INET6;
	if (who->is_ipv6 && bpf_core_field_exists(sk->__sk_common.skc_v6_rcv_saddr)) {
		BPF_CORE_READ_INTO(&who->address, sk, __sk_common.skc_v6_rcv_saddr);
		who->is_v6only = BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_ipv6only);
	}
	file = (struct socket_alloc *)BPF_CORE_READ(sk, sk_socket);
	who->socket_inode = file ? BPF_CORE_READ(file, vfs_inode.i_ino) : 0;
	who->cgroup_id = 0;
	if (bpf_core_field_exists(sk->sk_cgrp_data))
		who->cgroup_id = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
}

/* NULL when the map has no room, which an LRU map always makes. */
static __always_inline struct listener_watch *watch_of(struct sock *sk)
{
	__u64 cookie = bpf_get_socket_cookie(sk);
	struct watched *known = bpf_map_lookup_elem(&watched, &cookie);

	if (!known) {
		bpf_map_update_elem(&watched, &cookie, &nothing_yet, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&watched, &cookie);
		if (!known)
			return NULL;
		/* Another CPU may do the same now, with the same result. */
		identify(sk, cookie, &known->who);
	}
	return &known->watch;
}

static __always_inline struct syn_under_way *syn_under_way(void)
{
	__u32 index = 0;

	return bpf_map_lookup_elem(&syns_under_way, &index);
}

static __always_inline __u64 *last_enqueued(void)
{
	__u32 index = 0;

	return bpf_map_lookup_elem(&last_enqueue, &index);
}

static __always_inline struct net *net_of(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_net.net);
}

/* Of a segment on its way through TCP; false if it cannot be read. */
static __always_inline bool read_tcp_header(const struct sk_buff *skb, struct tcp_header *tcp)
{
	return !bpf_probe_read_kernel(tcp, sizeof(*tcp), skb->head + skb->transport_header);
}

static __always_inline bool identify_syn(const struct sock *sk, const struct sk_buff *skb, struct syn_identity *syn)
{
	const unsigned char *ip = skb->head + skb->network_header;
	struct ipv6_header ipv6;
	struct ipv4_header ipv4;
	struct tcp_header tcp;

	if (!read_tcp_header(skb, &tcp))
		return false;
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV6)) {
		if (bpf_probe_read_kernel(&ipv6, sizeof(ipv6), ip))
			return false;
		__builtin_memcpy(&syn->source, ipv6.source, sizeof(syn->source));
		__builtin_memcpy(&syn->destination, ipv6.destination, sizeof(syn->destination));
	} else {
		if (bpf_probe_read_kernel(&ipv4, sizeof(ipv4), ip))
			return false;
		syn->source = mapped_ipv4(ipv4.source);
		syn->destination = mapped_ipv4(ipv4.destination);
	}
	syn->source_port = tcp.source;
	syn->destination_port = tcp.destination;
	syn->seq = tcp.seq;
	syn->netns_inode = BPF_CORE_READ(net_of(sk), ns.inum);
	return true;
}

/*
 * As tcp_conn_request() has it: the last quarter is for destinations that are proven to be alive.
 */
static __always_inline bool is_three_quarters_full(struct net *net, const struct listener_load *load)
{
	__s32 backlog = BPF_CORE_READ(net, ipv4.sysctl_max_syn_backlog);

	return backlog - (__s32)load->syn_qlen < backlog >> 2;
}

/*
 * Why a SYN was not answered, in the order of tcp_conn_request(). Whether it was is certain; which
 * queue was full is as of its start and, for an accept queue that filled meanwhile on another CPU,
 * its end.
 *
 * The SYN queue is full above its limit (Linux 6.14 and stable kernels since 2025, "tcp/dccp: allow
 * a connection when sk_max_ack_backlog is zero"). Before, the limit itself was full: there a SYN
 * that nothing else explains was dropped for that.
 */
static __always_inline __u64 *cause_of_drop(struct listener_watch *watch, struct sock *sk,
					    const struct listener_load *before, bool has_cookies)
{
	struct listener_load after;

	read_load(sk, &after);
	if (!has_cookies && before->syn_qlen > before->syn_limit)
		return &watch->synq_full_dropped;
	if (accept_queue_is_full(before) || accept_queue_is_full(&after))
		return &watch->listenq_full_at_syn;
	if (!has_cookies && is_three_quarters_full(net_of(sk), before))
		return &watch->synq_3_4_full;
	if (!has_cookies && before->syn_qlen == before->syn_limit)
		return &watch->synq_full_dropped;
	return &watch->syns_dropped_otherwise;
}

static __always_inline void count_syn(struct listener_watch *watch, struct sock *sk, const struct syn_under_way *syn)
{
	__u8 syncookies = BPF_CORE_READ(net_of(sk), ipv4.sysctl_tcp_syncookies);

	count(&watch->syns);
	if (syn->answer == ANSWER_SYN_ACK) {
		count(&watch->answered);
	} else if (syn->answer == ANSWER_COOKIE) {
		count(&watch->cookies);
		if (syncookies != SYNCOOKIES_ALWAYS || syn->load.syn_qlen > syn->load.syn_limit)
			count(&watch->synq_full_cookie);
	} else {
		count(cause_of_drop(watch, sk, &syn->load, syncookies));
	}
}

/* A SYN of which the kernel keeps nothing can only be known again if we keep it. */
static __always_inline void count_repetition(struct listener_watch *watch, const struct sock *sk,
					     const struct sk_buff *skb, bool is_kept)
{
	struct syn_identity syn = {};
	__u32 nothing = 0;

	if (!identify_syn(sk, skb, &syn))
		return;
	if (bpf_map_lookup_elem(&unkept_syns, &syn))
		count(&watch->syns_repeated);
	else if (!is_kept)
		bpf_map_update_elem(&unkept_syns, &syn, &nothing, BPF_NOEXIST);
}

SEC("fentry/tcp_conn_request")
int BPF_PROG(on_syn, void *ops, void *af_ops, struct sock *sk)
{
	struct syn_under_way *syn = syn_under_way();

	if (!syn)
		return 0;
	syn->listener = (__u64)sk;
	syn->answer = ANSWER_NONE;
	read_load(sk, &syn->load);
	return 0;
}

/* Also runs for each SYN/ACK that is sent again, and then finds no SYN under way. */
SEC("fentry/tcp_make_synack")
int BPF_PROG(on_syn_ack, void *sk, void *dst, void *req, void *cookie, enum tcp_synack_type type)
{
	struct syn_under_way *syn = syn_under_way();

	if (!syn || !syn->listener)
		return 0;
	syn->answer = ANSWER_SYN_ACK;
	if (type == bpf_core_enum_value(enum tcp_synack_type, TCP_SYNACK_COOKIE))
		syn->answer = ANSWER_COOKIE;
	return 0;
}

SEC("fexit/tcp_conn_request")
int BPF_PROG(on_syn_decided, void *ops, void *af_ops, struct sock *sk, struct sk_buff *skb)
{
	struct syn_under_way *syn = syn_under_way();
	struct listener_watch *watch;

	if (!syn || syn->listener != (__u64)sk)
		return 0;	/* we came in its middle */
	syn->listener = 0;
	watch = watch_of(sk);
	if (!watch)
		return 0;
	count_syn(watch, sk, syn);
	count_repetition(watch, sk, skb, syn->answer == ANSWER_SYN_ACK);
	return 0;
}

/* A bare ACK; the next segments of a client whose ACK was dropped have data or FIN. */
static __always_inline bool is_bare_ack(const struct sk_buff *skb)
{
	struct tcp_header tcp;

	if (!read_tcp_header(skb, &tcp))
		return false;
	return !(tcp.flags & TCP_FIN) && skb->len == (tcp.offset >> 4) * 4;
}

/*
 * The end of a handshake; `child` is NULL when it was dropped. The queue is read after the kernel
 * looked at it, so that one place counts as the accept(2) of another CPU meanwhile.
 */
static __always_inline int count_end(struct sock *sk, const struct sk_buff *skb, __u64 child)
{
	struct listener_watch *watch;

	if (child)
		return 0;
	watch = watch_of(sk);
	if (!watch)
		return 0;
	if (sk->sk_ack_backlog >= sk->sk_max_ack_backlog) {
		count(&watch->listenq_overflow);
		if (is_bare_ack(skb))
			count(&watch->listenq_overflow_acks);
	} else {
		count(&watch->ends_dropped_otherwise);
	}
	return 0;
}

/* The number of arguments differs between kernels, and the result stands behind them. */
static __always_inline __u64 result_of(void *ctx)
{
	__u64 result = 0;

	bpf_get_func_ret(ctx, &result);
	return result;
}

SEC("fexit/tcp_v4_syn_recv_sock")
int BPF_PROG(on_end_v4, struct sock *sk, struct sk_buff *skb)
{
	return count_end(sk, skb, result_of(ctx));
}

/* For IPv4 it calls tcp_v4_syn_recv_sock(), and that is counted. */
SEC("fexit/tcp_v6_syn_recv_sock")
int BPF_PROG(on_end_v6, struct sock *sk, struct sk_buff *skb)
{
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4))
		return 0;
	return count_end(sk, skb, result_of(ctx));
}

static __always_inline bool is_repeated_syn(const struct sk_buff *skb, void *request)
{
	struct tcp_header tcp;

	if (!read_tcp_header(skb, &tcp))
		return false;
	return (tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN &&
	       bpf_ntohl(tcp.seq) == BPF_CORE_READ((struct tcp_request_sock *)request, rcv_isn);
}

SEC("fentry/tcp_check_req")
int BPF_PROG(on_request, struct sock *sk, struct sk_buff *skb, void *request)
{
	struct listener_watch *watch;

	if (sk->__sk_common.skc_state != SOCKET_LISTEN || !is_repeated_syn(skb, request))
		return 0;
	watch = watch_of(sk);
	if (watch)
		count(&watch->syns_of_requests);
	return 0;
}

static __always_inline int count_enqueued(struct sock *sk, const struct sock *child)
{
	__u64 connection = (__u64)child, now = bpf_ktime_get_ns();
	struct listener_watch *watch;

	if (sk->__sk_common.skc_state != SOCKET_LISTEN)
		return 0;	/* closed meanwhile: it comes into no queue */
	watch = watch_of(sk);
	if (!watch)
		return 0;
	count(&watch->enqueued);
	count_in(watch->lengths, sk->sk_ack_backlog);
	bpf_map_update_elem(&waiting, &connection, &now, 0);
	return 0;
}

/*
 * inet_csk_complete_hashdance() calls inet_csk_reqsk_queue_add(), or has it inlined: see
 * on_enqueue().
 */
SEC("fentry/inet_csk_complete_hashdance")
int BPF_PROG(on_hashdance, struct sock *sk, struct sock *child, void *request, bool is_own)
{
	__u64 cookie = bpf_get_socket_cookie(child);
	__u64 *counted = last_enqueued();

	if (!is_own || !counted)
		return 0;	/* another CPU ended this handshake */
	*counted = cookie;
	return count_enqueued(sk, child);
}

/*
 * Of a handshake by SYN cookie or TCP Fast Open, and of every other where the compiler left the
 * call.
 */
SEC("fentry/inet_csk_reqsk_queue_add")
int BPF_PROG(on_enqueue, struct sock *sk, void *request, struct sock *child)
{
	__u64 cookie = bpf_get_socket_cookie(child);
	__u64 *counted = last_enqueued();

	if (!counted || *counted == cookie)
		return 0;
	return count_enqueued(sk, child);
}

SEC("fexit/inet_csk_accept")
int BPF_PROG(on_accept, struct sock *sk)
{
	__u64 connection = result_of(ctx), sojourn_us;
	struct listener_watch *watch;
	__u64 *since;

	if (!connection)
		return 0;
	watch = watch_of(sk);
	if (!watch)
		return 0;
	count(&watch->accepted);
	since = bpf_map_lookup_elem(&waiting, &connection);
	if (!since) {
		count(&watch->sojourn_unknown);
		return 0;
	}
	sojourn_us = (bpf_ktime_get_ns() - *since) / NS_PER_US;
	__sync_fetch_and_add(&watch->sojourn_sum_us, sojourn_us);
	count_in(watch->sojourns_us, sojourn_us);
	bpf_map_delete_elem(&waiting, &connection);
	return 0;
}

/*
 * Writes every listener of the reader's network namespace. They come first; a record that is none
 * says that no other comes. There is one for each socket that follows, so that the kernel's page is
 * soon full and waits for a reader who has gone.
 */
SEC("iter/tcp")
int list_listeners(struct bpf_iter__tcp *ctx)
{
	struct sock_common *socket = ctx->sk_common;
	struct seq_file *seq = ctx->meta->seq;
	struct listed listed = {};
	struct tcp_sock *tcp;

	if (!socket)
		return 0;
	tcp = bpf_skc_to_tcp_sock(socket);
	if (!tcp || socket->skc_state != SOCKET_LISTEN) {
		bpf_seq_write(seq, &no_listener, sizeof(no_listener));
		return 0;
	}
	identify((struct sock *)tcp, bpf_get_socket_cookie(socket), &listed.who);
	read_load((struct sock *)tcp, &listed.load);
	listed.drops = BPF_CORE_READ((struct sock *)tcp, sk_drops.counter);
	listed.is_listener = 1;
	bpf_seq_write(seq, &listed, sizeof(listed));
	return 0;
}

/* GPL-2.0 OR Apache-2.0, for which the kernel has no word. */
char LICENSE[] SEC("license") = "GPL";
