// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The shortest response first on an uplink [SH06]. classify() is a filter of an HTB qdisc, which has a class for each band: it reads what
 * the connection of a segment is sending, decides by bands.h, and names the class. It changes no packet. A packet that it cannot
 * place (another protocol, no socket here, no lease) goes to the qdisc's default class, which is that of the top band.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "bands.h"
#include "http.h"
#include "option.bpf.h"
#include "segment.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	ANY_BAND = MAX_BANDS,		/* of a packet that is not placed */
	SEGMENT_OVERHEAD = 1280,	/* bytes: about what the kernel charges a socket for a segment beside its data */
	SOCK_NOSPACE = 2,		/* include/linux/net.h: a bit of socket->flags */
	AF_INET6 = 10,
	S_IFMT = 0170000,
	S_IFSOCK = 0140000,
};

/* ---- Fixed at load. ---- */

const volatile __u32 class_base = 0;		/* class of band 0; that of band b is b further */
const volatile __u32 sources = (1u << SIZE_SOURCES) - 1; /* bits of enum size_source that may be used */
const volatile __u32 is_limited = 1;		/* only segments that come from an address in `endpoints` are placed */
const volatile __u64 netns_cookie = 0;		/* of the namespace of the interface; the socket option's hook is the whole host's */

/* ---- Changed by the agent. ---- */

struct control {
	struct cutoffs cutoffs;
	__u64 lease_until_ns;			/* of bpf_ktime_get_coarse_ns(); afterwards nothing is placed */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

struct endpoint {
	struct address address;			/* all 0: any */
	__be16 port;				/* 0: any */
	__u16 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct endpoint);
	__type(value, __u8);
} endpoints SEC(".maps");

/* What a connection is sending. */
struct flow {
	struct response response;
	__u64 bytes;				/* of the response, sent */
	__u64 began_ns;				/* when its first segment came here */
	__u64 last_ns;				/* and its last */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

struct band_count {
	__u64 packets;				/* a buffer of several segments is one */
	__u64 bytes;				/* with all headers */
};

/* By band, and of packets that were not placed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_BANDS + 1);
	__type(key, __u32);
	__type(value, struct band_count);
} band_counts SEC(".maps");

/* A response of which the last byte was sent. */
struct sent_response {
	__u64 bytes;
	__u64 began_ns;
	__u64 ended_ns;
	__u32 source;				/* enum size_source: how its size was known at its end */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} sent_responses SEC(".maps");

/* That were sent while the ring was full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} uncounted SEC(".maps");

/* A call of sendfile(2), by the address of its socket. */
struct sendfile_call {
	__u64 bytes;
	__u32 write_seq;			/* when it was called */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct sendfile_call);
} sendfile_calls SEC(".maps");

struct header_scratch {
	struct http_header header;
	__u8 bytes[HTTP_HEADER_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct header_scratch);
} header_scratches SEC(".maps");

/* ---- How many bytes are left. ---- */

static __always_inline bool may_use(enum size_source source)
{
	return sources & (1u << source);
}

static long read_header_byte(__u32 offset, struct header_scratch **scratch)
{
	struct header_scratch *header = *scratch;

	return http_read(&header->header, header->bytes[offset & (HTTP_HEADER_BYTES - 1)], offset);
}

static __noinline int tell_length(struct __sk_buff *skb, struct flow *flow, __u32 offset, __u32 payload_length)
{
	__u32 only = 0, length = payload_length;
	struct header_scratch *scratch = bpf_map_lookup_elem(&header_scratches, &only);
	__u64 bytes;

	if (!scratch || !flow || length < HTTP_STATUS_BYTES)
		return 0;
	if (bpf_skb_load_bytes(skb, offset, scratch->bytes, HTTP_STATUS_BYTES) || !http_has_length(scratch->bytes))
		return 0;
	if (length > HTTP_HEADER_BYTES)
		length = HTTP_HEADER_BYTES;
	/* Once more, because 6.1 forgets the bound of a length that it had on the stack. */
	length = ((length - 1) & (HTTP_HEADER_BYTES - 1)) + 1;
	if (bpf_skb_load_bytes(skb, offset, scratch->bytes, length))
		return 0;
	__builtin_memset(&scratch->header, 0, sizeof(scratch->header));
	bpf_loop(length, read_header_byte, &scratch, 0);
	bytes = http_response_bytes(&scratch->header, length);
	if (bytes)
		tell_size(&flow->response, SOURCE_LENGTH, flow->response.sent, bytes);
	return 0;
}

/* What sendfile(2) said since, which is of bytes that are not sent yet, or it is of an earlier response. */
static __always_inline void tell_sendfile(struct flow *flow, __u64 socket, const struct outgoing *outgoing)
{
	struct sendfile_call *call = bpf_map_lookup_elem(&sendfile_calls, &socket);
	__u32 seq = outgoing->seq, ahead;

	if (!call)
		return;
	ahead = call->write_seq - seq;
	/* Of a socket that had this address before. */
	if (comes_before(outgoing->write_seq, call->write_seq)) {
		bpf_map_delete_elem(&sendfile_calls, &socket);
		return;
	}
	if (!comes_before(call->write_seq, seq))
		tell_size(&flow->response, SOURCE_SENDFILE, seq, call->bytes + ahead);
	else if (-ahead < call->bytes)
		tell_size(&flow->response, SOURCE_SENDFILE, seq, call->bytes - -ahead);
}

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

/* What its headers say. */
struct headers {
	__u32 seq;
	__u32 payload_offset;			/* bytes from the start of the frame */
	__u32 payload_length;
	__u32 flags;
};

static __always_inline bool is_named(const struct bpf_sock *sk)
{
	/* Volatile, and each read in any case: an offset that is chosen is added to the pointer, which the verifier forbids. */
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

/* False for what is seldom sent: IP options, extension headers, VLAN tags that are in the frame already. */
static __always_inline bool read_headers(struct __sk_buff *skb, struct headers *headers)
{
	struct frame frame = {
		.data = (void *)(long)skb->data,
		.data_end = (void *)(long)skb->data_end,
		.length = skb->len,
	};
	const struct tcp_header *tcp = find_plain_tcp(&frame);

	if (!tcp)
		return false;
	headers->seq = bpf_ntohl(tcp->seq);
	headers->payload_offset = (void *)tcp - frame.data + (tcp->offset >> 4) * 4;
	/* The kernel adds no padding before a driver does. */
	headers->payload_length = frame.length - headers->payload_offset;
	headers->flags = tcp->flags;
	return true;
}

static __always_inline void read_outgoing(struct tcp_sock *tcp, const struct headers *headers, struct outgoing *outgoing)
{
	struct sock *sk = &tcp->inet_conn.icsk_inet.sk;
	struct socket *socket = sk->sk_socket;

	outgoing->seq = headers->seq;
	outgoing->end = headers->seq + headers->payload_length;
	outgoing->rcv_nxt = tcp->rcv_nxt;
	outgoing->write_seq = tcp->write_seq;
	outgoing->is_blocked = socket && socket->flags >> SOCK_NOSPACE & 1;
	/*
	 * Of what the kernel charges this socket, one is its own, and this segment has its data and its overhead. Another
	 * one has an overhead at least.
	 */
	outgoing->has_waiting = sk->sk_wmem_alloc.refs.counter >
				(__s32)(headers->payload_length + 2 * SEGMENT_OVERHEAD);
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
	if (may_use(SOURCE_SENDFILE) && !response->told)
		tell_sendfile(flow, (__u64)tcp, &outgoing);
	if (may_use(SOURCE_LENGTH) && headers->seq == response->sent && may_begin_header(response, &outgoing))
		tell_length(skb, flow, headers->payload_offset, headers->payload_length);
	left = bytes_left(response, &outgoing, may_use(SOURCE_BUFFERED));
	band = next_band(&control->cutoffs, response, &outgoing, left);
	before = response->sent;
	note_sent(response, &outgoing);
	if (before == response->sent)
		return band; /* it was sent before */
	flow->last_ns = now;
	if (!flow->bytes)
		flow->began_ns = now;
	flow->bytes += response->sent - before;
	if (response->source >= SOURCE_LENGTH && !response->told)
		end_response(flow);
	return band;
}

/*
 * A FIN or RST goes behind the data of its connection: a RST that overtook it would destroy it at the client. Whatever else
 * has no data goes first, and so does every SYN.
 */
static __always_inline __u32 place(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	/* To a tick of the kernel, a few ms, which is enough for both of its uses. */
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

/* A filter of the qdisc: the class, or 0 for the default one. */
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

/* ---- Who tells a size ahead. ---- */

/* sendfile(2) and splice(2) into a socket. The socket is a struct socket_alloc's, as net/socket.c:sock_from_file() has it. */
SEC("fentry/do_splice_direct")
int note_sendfile(__u64 *ctx)			/* in, position, out, position, bytes, flags */
{
	struct file *out = (void *)ctx[2];
	struct sendfile_call call = { .bytes = ctx[4] };
	struct socket *socket;
	struct tcp_sock *tcp;
	__u64 key;

	if ((BPF_CORE_READ(out, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(out, private_data);
	tcp = (struct tcp_sock *)BPF_CORE_READ(socket, sk);
	if (!tcp || BPF_CORE_READ(tcp, inet_conn.icsk_inet.sk.sk_protocol) != PROTOCOL_TCP)
		return 0;
	key = (__u64)tcp;
	call.write_seq = BPF_CORE_READ(tcp, write_seq);
	bpf_map_update_elem(&sendfile_calls, &key, &call, 0);
	return 0;
}

/*
 * A pointer becomes a number once it was in a map. This hook may read a socket's fields by bpf_probe_read_kernel() only, and the verifier lets
 * nobody add an offset to its pointer.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} addresses SEC(".maps");

static __always_inline bool read_write_seq(struct bpf_sock *sk, __u32 *write_seq)
{
	__u32 only = 0;
	volatile __u64 *address = bpf_map_lookup_elem(&addresses, &only);

	if (!address)
		return false;
	*address = (__u64)sk;
	return !bpf_core_read(write_seq, sizeof(*write_seq), &((struct tcp_sock *)*address)->write_seq);
}

/* The program says how many bytes it will write from here on: TIDEGATE_BYTES_TO_COME, a __u64. */
SEC("cgroup/setsockopt")
int set_bytes(struct bpf_sockopt *option)
{
	__u64 *bytes = option->optval;
	struct flow *flow;
	__u32 write_seq;

	if (!is_option(option, TIDEGATE_BYTES_TO_COME, netns_cookie))
		return leave_option(option);
	/* The buffer may be longer than what the program wrote. -1 is of an uplink on another interface, which has heard it. */
	if ((option->optlen != -1 && option->optlen < (__s32)sizeof(*bytes)) || (void *)(bytes + 1) > option->optval_end)
		return refuse_option(EINVAL);
	flow = bpf_sk_storage_get(&flows, option->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow)
		return refuse_option(ENOMEM);
	if (may_use(SOURCE_TOLD) && read_write_seq(option->sk, &write_seq))
		tell_size(&flow->response, SOURCE_TOLD, write_seq, *bytes);
	option->optlen = -1; /* the kernel need not see it */
	return 1;
}
