// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Shortest response first on an uplink [SH06]. The function classify() is a filter of an HTB qdisc,
 * which has a class for each band. It finds the bytes that a response has left (left.bpf.h), asks
 * bands.h, and names the class. It changes no packet. A packet of another protocol, or without a
 * socket here, goes to the default class, that of the top band. Without a lease every packet does.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "bands.h"

/* The response that a connection sends. */
struct flow {
	struct response response;
	__u64 bytes;				/* sent of this response */
	__u64 began_ns;				/* when its first segment passed here */
	__u64 last_ns;				/* when its last segment passed here */
};

#include "left.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	ANY_BAND = MAX_BANDS,		/* the packet is not placed */
	AF_INET6 = 10,
};

/* ---- Fixed at load. ---- */

const volatile __u32 class_base = 0;		/* class of band 0; that of band b is class_base + b */
const volatile __u32 is_limited = 1;		/* true: place only segments from an address in `endpoints` */

/* ---- Changed by the agent. ---- */

struct control {
	struct cutoffs cutoffs;
	__u64 lease_until_ns;			/* of bpf_ktime_get_coarse_ns(); later, nothing is placed */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

struct endpoint {
	struct address address;			/* all 0: any address */
	__be16 port;
	__u16 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct endpoint);
	__type(value, __u8);
} endpoints SEC(".maps");

struct band_count {
	__u64 packets;				/* a buffer of several segments counts once */
	__u64 bytes;				/* with all headers */
};

/* Counts for each band, and for packets that were not placed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_BANDS + 1);
	__type(key, __u32);
	__type(value, struct band_count);
} band_counts SEC(".maps");

/* A response that was sent to its last byte. */
struct sent_response {
	__u64 bytes;
	__u64 began_ns;
	__u64 ended_ns;
	__u32 source;				/* enum size_source: the source of its size at the end */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} sent_responses SEC(".maps");

/* Responses that ended while the ring was full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} uncounted SEC(".maps");

/* ---- Responses that ended. ---- */

static __always_inline void end_response(struct flow *flow)
{
	struct sent_response *sent;
	__u64 *lost;
	__u32 only = 0;

	if (!flow->bytes)
		return;
	sent = bpf_ringbuf_reserve(&sent_responses, sizeof(*sent), 0);
	if (!sent) {
		lost = bpf_map_lookup_elem(&uncounted, &only);
		if (lost)
			__sync_fetch_and_add(lost, 1);
	} else {
		sent->bytes = flow->bytes;
		sent->began_ns = flow->began_ns;
		sent->ended_ns = flow->last_ns;
		sent->source = flow->response.source;
		sent->reserved = 0;
		bpf_ringbuf_submit(sent, 0);
	}
	flow->bytes = 0;
}

/* ---- A segment. ---- */

static __always_inline bool is_named(const struct bpf_sock *sk)
{
	/*
	 * Volatile, and each field is read in any case. Otherwise the compiler adds a chosen offset
	 * to the pointer, which the verifier forbids.
	 */
	const volatile struct bpf_sock *own = sk;
	struct endpoint endpoint = {};
	__u32 ipv4, last;

	if (!is_limited)
		return true;
	ipv4 = own->src_ip4;
	last = own->src_ip6[3];
	endpoint.port = bpf_htons(own->src_port);
	endpoint.address.word[0] = own->src_ip6[0];
	endpoint.address.word[1] = own->src_ip6[1];
	endpoint.address.word[2] = own->src_ip6[2];
	endpoint.address.word[3] = last;
	if (own->family != AF_INET6) {
		endpoint.address.word[0] = 0;
		endpoint.address.word[1] = 0;
		endpoint.address.word[2] = bpf_htonl(0xffff);
		endpoint.address.word[3] = ipv4;
	}
	if (bpf_map_lookup_elem(&endpoints, &endpoint))
		return true;
	__builtin_memset(&endpoint.address, 0, sizeof(endpoint.address));
	return bpf_map_lookup_elem(&endpoints, &endpoint);
}

static __always_inline __u32 place_data(struct __sk_buff *skb, const struct control *control, struct tcp_sock *tcp,
					const struct headers *headers, __u64 now)
{
	struct outgoing outgoing;
	struct flow *flow = bpf_sk_storage_get(&flows, tcp, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	struct response *response;
	__u32 band, before;
	__u64 left;

	if (!flow)
		return ANY_BAND;
	response = &flow->response;
	read_outgoing(tcp, headers, &outgoing);
	if (begins_response(response, &outgoing)) {
		end_response(flow);
		begin_response(response, &outgoing);
	}
	left = learn_left(skb, flow, tcp, headers, &outgoing);
	band = next_band(&control->cutoffs, response, &outgoing, left);
	before = response->sent;
	note_sent(response, &outgoing);
	if (before == response->sent)
		return band; /* a repeated segment */
	flow->last_ns = now;
	if (!flow->bytes)
		flow->began_ns = now;
	flow->bytes += response->sent - before;
	if (response->source >= SOURCE_LENGTH && !response->told)
		end_response(flow);
	return band;
}

/*
 * A FIN or RST goes behind the data of its connection. A RST that overtook the data would destroy
 * it at the client. A SYN, and any other segment without data, goes first.
 */
static __always_inline __u32 place(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	/* Coarse: off by a kernel tick, a few ms, which is good enough for both uses. */
	__u64 now = bpf_ktime_get_coarse_ns();
	struct control *control;
	struct headers headers;
	struct tcp_sock *tcp;
	struct flow *flow;
	__u32 band = 0;

	control = bpf_map_lookup_elem(&controls, &band);
	if (!sk || !control || now > control->lease_until_ns)
		return ANY_BAND;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != PROTOCOL_TCP || !is_named(sk))
		return ANY_BAND;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp || !read_headers(skb, &headers))
		return ANY_BAND;
	if (headers.flags & TCP_SYN)
		return 0;
	if (headers.payload_length)
		band = place_data(skb, control, tcp, &headers, now);
	if (headers.flags & (TCP_FIN | TCP_RST)) {
		flow = bpf_sk_storage_get(&flows, tcp, NULL, 0);
		if (flow) {
			end_response(flow);
			if (!headers.payload_length)
				band = flow->response.band;
		}
	}
	return band;
}

static __always_inline __u32 place_and_count(struct __sk_buff *skb)
{
	__u32 band = place(skb);
	struct band_count *count = bpf_map_lookup_elem(&band_counts, &band);

	if (count) {
		count->packets++;
		count->bytes += skb->len;
	}
	return band;
}

/* A filter of the qdisc. It returns the class, or 0 for the default one. */
SEC("tc")
int classify(struct __sk_buff *skb)
{
	__u32 band = place_and_count(skb);

	return band < MAX_BANDS ? class_base + band : 0;
}

/* A dry run, at tcx egress. */
SEC("tc")
int only_count(struct __sk_buff *skb)
{
	place_and_count(skb);
	return TC_ACT_UNSPEC;
}
