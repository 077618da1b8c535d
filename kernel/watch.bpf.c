// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Telemetry of all listeners of the host, in every network namespace. It counts the fate of SYNs
 * and of handshake ends, and the wait for accept(2). It only reads: nothing here decides, and
 * nothing runs for data segments.
 *
 * Each hook may be missing: the agent loads those whose functions this kernel has. The causes are
 * those of [Shu05] section 2.1.1, as today's kernel decides them.
 */
/*
 * Kernel functions have fixed arguments, and some are not read here. Some functions of the headers
 * are not used.
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
	MAX_WATCHED = 4096,		/* listeners; the least recently used is forgotten; the same in crates/watch */
	MAX_WAITING = 65536,		/* connections in accept queues with a known start */
	MAX_UNKEPT = 32768,		/* SYNs remembered here because the kernel kept nothing of them */
	NS_PER_US = 1000,
	SYNCOOKIES_ALWAYS = 2,
	INET6 = 10,			/* AF_INET6 */
};

/* Identity of a listener. The agent finds its name, owner and cgroup by this. */
struct listener_identity {
	__u64 cookie;			/* of the socket; never used again */
	__u64 cgroup_id;		/* version 2, where the socket was made; 0: unknown */
	__u64 socket_inode;		/* 0: no file, such as a socket of the kernel */
	struct address address;		/* bound address */
	__u32 netns_inode;
	__u16 port;			/* host order */
	__u8 is_ipv6;
	__u8 is_v6only;
};

/* Counts of one listener since the watch began. */
struct listener_watch {
	/*
	 * syns = answered + cookies + listenq_full_at_syn + synq_full_dropped + synq_3_4_full +
	 * syns_dropped_otherwise
	 */
	__u64 syns;			/* SYNs for a new handshake */
	__u64 answered;			/* answered by SYN/ACK, with a request socket */
	__u64 cookies;			/* answered by SYN cookie */
	__u64 listenq_full_at_syn;	/* dropped: the accept queue was full */
	__u64 synq_full_dropped;	/* dropped: the SYN queue was full, cookies off */
	__u64 synq_full_cookie;		/* of `cookies`: the SYN queue was full */
	__u64 synq_3_4_full;		/* dropped: less than a quarter of tcp_max_syn_backlog left, cookies off */
	__u64 syns_dropped_otherwise;	/* dropped: no memory, no route, a security module */
	__u64 syns_repeated;		/* of `syns`: the kernel kept nothing of an earlier one */
	__u64 syns_of_requests;		/* besides `syns`: repeated for an existing request socket */
	/* Segments that would end a handshake and were dropped. */
	__u64 listenq_overflow;		/* the accept queue was full */
	__u64 listenq_overflow_acks;	/* of these, without data or FIN: [Shu05] table 4.1 */
	__u64 ends_dropped_otherwise;
	__u64 enqueued;			/* connections that entered the accept queue */
	__u64 accepted;			/* connections taken by accept(2) */
	__u64 sojourn_unknown;		/* of `accepted`: enqueued before the watch, or forgotten */
	__u64 sojourn_sum_us;
	__u64 lengths[BUCKETS];		/* accept queue before each new connection */
	__u64 sojourns_us[BUCKETS];	/* time from then until accept(2) */
};

_Static_assert(sizeof(struct listener_watch) == (17 + 2 * BUCKETS) * sizeof(__u64), "user space reads raw words");

struct watched {
	struct listener_identity who;
	struct listener_watch watch;
};

/* A listener as it is now. The last record is not a listener. */
struct listed {
	struct listener_identity who;
	struct listener_load load;
	__u32 drops;			/* SYNs and handshake ends since it listens, for any cause; may wrap */
	__u32 is_listener;
};

enum syn_answer {
	ANSWER_NONE,
	ANSWER_SYN_ACK,
	ANSWER_COOKIE,
};

/*
 * The SYN that this CPU decides about. Softirqs are off from the start of tcp_conn_request() to its
 * end.
 */
struct syn_under_way {
	__u64 listener;			/* 0: none */
	struct listener_load load;
	__u32 answer;			/* enum syn_answer */
	__u32 zero;
};

/* Identity of a SYN. Every repetition has the same. */
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
 * Times at which connections entered the accept queue. The kernel reuses a socket's address only
 * after accept(2) took it.
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
	__type(value, __u32);		/* unused */
} unkept_syns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_under_way);
} syns_under_way SEC(".maps");

/*
 * Cookie of the connection that on_hashdance() counted last on this CPU. Softirqs are off from
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

/* NULL when the map has no room. An LRU map always makes room. */
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

/* Reads the header of a segment inside the kernel's TCP. False if it is not readable. */
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

/* As in tcp_conn_request(): the last quarter is for destinations that are proven to be alive. */
static __always_inline bool is_three_quarters_full(struct net *net, const struct listener_load *load)
{
	__s32 backlog = BPF_CORE_READ(net, ipv4.sysctl_max_syn_backlog);

	return backlog - (__s32)load->syn_qlen < backlog >> 2;
}

/*
 * Finds why a SYN got no answer, in the order of tcp_conn_request(). That it got none is certain.
 * The full queue is a guess from the queues at the start. An accept queue that another CPU filled
 * meanwhile is seen at the end.
 *
 * Since Linux 6.14, and the stable kernels of 2025, the SYN queue is full above its limit. The
 * change is "tcp/dccp: allow a connection when sk_max_ack_backlog is zero". Before, the limit
 * itself was full. There a SYN without another cause was dropped for that.
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

/*
 * Counts a repeated SYN. The kernel forgets a SYN that it does not keep, so the map remembers it.
 */
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

/* Runs also for each repeated SYN/ACK, and then finds no SYN under way. */
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
		return 0;	/* the watch began in its middle */
	syn->listener = 0;
	watch = watch_of(sk);
	if (!watch)
		return 0;
	count_syn(watch, sk, syn);
	count_repetition(watch, sk, skb, syn->answer == ANSWER_SYN_ACK);
	return 0;
}

/* True for a bare ACK. If the kernel drops it, the client's next segments have data or FIN. */
static __always_inline bool is_bare_ack(const struct sk_buff *skb)
{
	struct tcp_header tcp;

	if (!read_tcp_header(skb, &tcp))
		return false;
	return !(tcp.flags & TCP_FIN) && skb->len == (tcp.offset >> 4) * 4;
}

/*
 * Counts the end of a handshake; `child` is NULL when it was dropped. The queue is read after the
 * kernel looked at it. One place of difference stands for an accept(2) of another CPU meanwhile.
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

/* The number of arguments differs between kernels, and the result comes after them. */
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

/* For IPv4 it calls tcp_v4_syn_recv_sock(), which is counted. */
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
		return 0;	/* closed meanwhile: the connection enters no queue */
	watch = watch_of(sk);
	if (!watch)
		return 0;
	count(&watch->enqueued);
	count_in(watch->lengths, sk->sk_ack_backlog);
	bpf_map_update_elem(&waiting, &connection, &now, 0);
	return 0;
}

/*
 * inet_csk_complete_hashdance() calls inet_csk_reqsk_queue_add(), or the compiler has inlined it:
 * see on_enqueue().
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
 * Runs for a handshake by SYN cookie or TCP Fast Open. Runs for the others where the compiler left
 * the call.
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
 * Writes every listener of the reader's network namespace. They come first, and a record that is no
 * listener ends them. Each later socket writes one more such record. So the kernel's page is soon
 * full, and waits for a reader that has gone.
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

/* Our code is GPL-2.0 OR Apache-2.0. The kernel has no word for that. */
char LICENSE[] SEC("license") = "GPL";
