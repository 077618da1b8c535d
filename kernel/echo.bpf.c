// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A web server in XDP, the fastest peer on a veth. It answers HTTP over TCP without a connection, a
 * socket or a process.
 *
 * - SYN: SYN|ACK
 * - segment with data: PSH|ACK (FIN too, if it had one) and the fixed response;
 *   with is_silent a bare ACK, so that the client waits
 * - FIN: FIN|ACK
 * - other ACK, RST: nothing
 *
 * Each reply is computed from the segment that it answers. It is for benchmarks of load generators
 * only: it accepts anything and retransmits nothing. It answers IPv4 without options; the kernel
 * gets the rest.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "headers.h"

#define INITIAL_SEQ	0x7469u	/* for every connection: clients use a fresh four-tuple each time */
#define WINDOW		65535
#define TTL		64

/* The port to answer on, in network byte order; fixed at load. */
const volatile __be16 port;
/* True: requests are acknowledged but never answered, as by a busy server. */
const volatile bool is_silent;

/* Replies sent, per CPU. */
struct echo_counters {
	__u64 syns;
	__u64 requests;
	__u64 fins;		/* without data; a FIN that ends a request is in requests */
	__u64 silent;		/* ACK or RST: no reply */
	__u64 failed;		/* the reply did not fit into the frame's memory */
};

_Static_assert(sizeof(struct echo_counters) == 5 * sizeof(__u64), "no padding: user space copies raw bytes");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct echo_counters);
} counters SEC(".maps");

/* The response closes: clients that keep connections would not open many. */
#define RESPONSE "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 7\r\n\r\nhello!\n"
#define RESPONSE_LEN (sizeof(RESPONSE) - 1)

struct response {
	char text[RESPONSE_LEN];
};

_Static_assert(RESPONSE_LEN % 4 == 0, "bpf_csum_diff() takes whole words");

#define HEADERS_LEN (sizeof(struct ethernet_header) + sizeof(struct ipv4_header) + sizeof(struct tcp_header))

struct headers {
	struct ethernet_header *eth;
	struct ipv4_header *ip;
	struct tcp_header *tcp;
};

/* The segment to answer. Sequence numbers are in host byte order. */
struct segment {
	__u32 seq;
	__u32 ack;
	__u32 data_len;		/* bytes, without headers and Ethernet padding */
	__u8 flags;
};

struct reply {
	__u32 seq;
	__u32 ack;
	__u8 flags;
	bool has_response;
};

/* False when the frame is too short. */
static bool find_headers(const struct xdp_md *ctx, struct headers *headers)
{
	headers->eth = (struct ethernet_header *)(long)ctx->data;
	headers->ip = (struct ipv4_header *)(headers->eth + 1);
	headers->tcp = (struct tcp_header *)(headers->ip + 1);
	return (void *)(headers->tcp + 1) <= (void *)(long)ctx->data_end;
}

static bool read_segment(const struct xdp_md *ctx, struct segment *segment)
{
	struct headers in;
	__u32 header_len, total_length;

	if (!find_headers(ctx, &in) || in.eth->ethertype != bpf_htons(ETHERTYPE_IPV4))
		return false;
	if (in.ip->version_ihl != 0x45 || in.ip->protocol != PROTOCOL_TCP || in.tcp->destination != port)
		return false;
	if (in.ip->fragment & bpf_htons(IPV4_FRAGMENT_BITS))
		return false;
	header_len = sizeof(*in.ip) + (in.tcp->offset >> 4) * 4;
	total_length = bpf_ntohs(in.ip->total_length);
	if (total_length < header_len)
		return false;
	segment->seq = bpf_ntohl(in.tcp->seq);
	segment->ack = bpf_ntohl(in.tcp->ack);
	segment->data_len = total_length - header_len;
	segment->flags = in.tcp->flags;
	return true;
}

/* Fills `reply` with the answer to `segment`, and counts it. False: no answer. */
static bool answer(const struct segment *segment, struct reply *reply, struct echo_counters *count)
{
	__u8 fin = segment->flags & TCP_FIN;

	*reply = (struct reply){ .seq = segment->ack, .ack = segment->seq + segment->data_len + (fin ? 1 : 0) };
	if (segment->flags & TCP_RST)
		return false;
	if (segment->flags & TCP_SYN) {
		reply->seq = INITIAL_SEQ;
		reply->ack = segment->seq + 1;
		reply->flags = TCP_SYN | TCP_ACK;
		count->syns++;
		return true;
	}
	if (segment->data_len) {
		reply->flags = (is_silent ? 0 : TCP_PSH) | TCP_ACK | fin;
		reply->has_response = !is_silent;
		count->requests++;
		return true;
	}
	if (fin) {
		reply->flags = TCP_FIN | TCP_ACK;
		count->fins++;
		return true;
	}
	return false;
}

/* The complement of the folded sum, for a header. */
static __u16 checksum_of(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static void turn_ethernet(struct ethernet_header *eth)
{
	struct ethernet_header old = *eth;

	__builtin_memcpy(eth->destination, old.source, sizeof(old.source));
	__builtin_memcpy(eth->source, old.destination, sizeof(old.destination));
}

static void write_ipv4(struct ipv4_header *ip, __u16 tcp_len)
{
	struct ipv4_header out = {
		.version_ihl = 0x45,
		.total_length = bpf_htons(sizeof(out) + tcp_len),
		.fragment = bpf_htons(IPV4_DONT_FRAGMENT),
		.ttl = TTL,
		.protocol = PROTOCOL_TCP,
		.source = ip->destination,
		.destination = ip->source,
	};

	out.checksum = checksum_of(bpf_csum_diff(0, 0, (__be32 *)&out, sizeof(out), 0));
	*ip = out;
}

static void write_tcp(struct tcp_header *tcp, const struct reply *reply)
{
	struct tcp_header out = {
		.source = tcp->destination,
		.destination = tcp->source,
		.seq = bpf_htonl(reply->seq),
		.ack = bpf_htonl(reply->ack),
		.offset = sizeof(out) / 4 << 4,
		.flags = reply->flags,
		.window = bpf_htons(WINDOW),
	};

	*tcp = out;
}

/* Sum over the IPv4 pseudo-header, the start of a TCP checksum. */
static __u32 pseudo_header_sum(const struct ipv4_header *ip, __u16 tcp_len)
{
	__be32 pseudo[3] = { ip->source, ip->destination, bpf_htonl(PROTOCOL_TCP << 16 | tcp_len) };

	return bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
}

/*
 * Writes the response, and adds its sum to `sum`. It gives -1 when the response exceeds the frame.
 */
static __s64 write_response(struct response *response, const void *end, __u32 sum)
{
	if ((const void *)(response + 1) > end)
		return -1;
	__builtin_memcpy(response->text, RESPONSE, RESPONSE_LEN);
	return bpf_csum_diff(0, 0, (__be32 *)response, RESPONSE_LEN, sum);
}

static int write_reply(struct xdp_md *ctx, const struct reply *reply)
{
	__u16 data_len = reply->has_response ? RESPONSE_LEN : 0;
	__u16 tcp_len = sizeof(struct tcp_header) + data_len;
	struct headers out;
	__s64 sum;

	if (bpf_xdp_adjust_tail(ctx, (int)(HEADERS_LEN + data_len) - (int)(ctx->data_end - ctx->data)))
		return -1;
	if (!find_headers(ctx, &out))
		return -1;
	turn_ethernet(out.eth);
	write_ipv4(out.ip, tcp_len);
	write_tcp(out.tcp, reply);
	sum = pseudo_header_sum(out.ip, tcp_len);
	sum = bpf_csum_diff(0, 0, (__be32 *)out.tcp, sizeof(*out.tcp), sum);
	if (reply->has_response)
		sum = write_response((struct response *)(out.tcp + 1), (void *)(long)ctx->data_end, sum);
	if (sum < 0)
		return -1;
	out.tcp->checksum = checksum_of(sum);
	return 0;
}

SEC("xdp")
int echo(struct xdp_md *ctx)
{
	struct segment segment;
	struct reply reply;
	__u32 zero = 0;
	struct echo_counters *count = bpf_map_lookup_elem(&counters, &zero);

	if (!count || !read_segment(ctx, &segment))
		return XDP_PASS;
	if (!answer(&segment, &reply, count)) {
		count->silent++;
		return XDP_DROP;
	}
	if (write_reply(ctx, &reply)) {
		count->failed++;
		return XDP_DROP;
	}
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
