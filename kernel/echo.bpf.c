// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The fastest web server that a veth can have: answers HTTP over TCP without a connection, a socket or a process.
 *
 *	SYN			-> SYN|ACK
 *	segment with data	-> PSH|ACK (FIN too, if it had one) and the fixed response
 *	FIN			-> FIN|ACK
 *	other ACK, RST		-> nothing
 *
 * All that a reply says is computed from the segment that it answers. A peer for benchmarks of load generators only: it
 * accepts anything, retransmits nothing, and answers IPv4 without options only. The rest goes to the kernel.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };

/* include/uapi/linux/bpf.h; declared here because it needs <asm/types.h>, which is not where clang -target bpf looks. */
enum {
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
};
enum {
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
};
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

struct ethhdr {
	__u8 h_dest[6];
	__u8 h_source[6];
	__be16 h_proto;
};

struct iphdr {
	__u8 version_ihl;	/* 0x45: version 4, five words, so no options */
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__u16 check;
	__be32 saddr;
	__be32 daddr;
};

struct tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack_seq;
	__u8 doff;		/* header length in words, upper four bits */
	__u8 flags;
	__be16 window;
	__u16 check;
	__be16 urg_ptr;
};

#define ETH_P_IP	0x0800
#define IPPROTO_TCP	6
#define IP_FRAGMENT	0x3fff	/* more fragments, or an offset */
#define IP_DF		0x4000

#define TCP_FIN	0x01
#define TCP_SYN	0x02
#define TCP_RST	0x04
#define TCP_PSH	0x08
#define TCP_ACK	0x10

#define INITIAL_SEQ	0x7469u	/* ours, for every connection: clients use a fresh four-tuple each time */
#define WINDOW		65535
#define TTL		64

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

/* The kernel's network byte order port to answer on, fixed at load. */
const volatile __be16 port;

/* Replies sent, per CPU. */
struct echo_counters {
	__u64 syns;
	__u64 requests;
	__u64 fins;		/* without data; a FIN that ends a request is in requests */
	__u64 silent;		/* ACK, RST: nothing to say */
	__u64 failed;		/* a reply that did not fit into the frame's memory */
};

_Static_assert(sizeof(struct echo_counters) == 5 * sizeof(__u64), "no padding: user space copies raw bytes");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct echo_counters);
} counters SEC(".maps");

#define RESPONSE "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
#define RESPONSE_LEN (sizeof(RESPONSE) - 1)

struct response {
	char text[RESPONSE_LEN];
};

_Static_assert(RESPONSE_LEN % 4 == 0, "bpf_csum_diff() takes whole words");

#define HEADERS_LEN (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct tcphdr))

struct headers {
	struct ethhdr *eth;
	struct iphdr *ip;
	struct tcphdr *tcp;
};

/* What a reply needs to know of the segment it answers. Sequence numbers in host byte order. */
struct segment {
	__u32 seq;
	__u32 ack;
	__u32 data_len;		/* bytes, without header and Ethernet padding */
	__u8 flags;
};

struct reply {
	__u32 seq;
	__u32 ack;
	__u8 flags;
	bool has_response;
};

/* False when the frame is too short to have them. */
static bool find_headers(const struct xdp_md *ctx, struct headers *headers)
{
	headers->eth = (struct ethhdr *)(long)ctx->data;
	headers->ip = (struct iphdr *)(headers->eth + 1);
	headers->tcp = (struct tcphdr *)(headers->ip + 1);
	return (void *)(headers->tcp + 1) <= (void *)(long)ctx->data_end;
}

static bool read_segment(const struct xdp_md *ctx, struct segment *segment)
{
	struct headers in;
	__u32 header_len, total_len;

	if (!find_headers(ctx, &in) || in.eth->h_proto != bpf_htons(ETH_P_IP))
		return false;
	if (in.ip->version_ihl != 0x45 || in.ip->protocol != IPPROTO_TCP || in.tcp->dest != port)
		return false;
	if (in.ip->frag_off & bpf_htons(IP_FRAGMENT))
		return false;
	header_len = sizeof(*in.ip) + (in.tcp->doff >> 4) * 4;
	total_len = bpf_ntohs(in.ip->tot_len);
	if (total_len < header_len)
		return false;
	segment->seq = bpf_ntohl(in.tcp->seq);
	segment->ack = bpf_ntohl(in.tcp->ack_seq);
	segment->data_len = total_len - header_len;
	segment->flags = in.tcp->flags;
	return true;
}

/* Says in `reply` what answers `segment`, and counts it; false when nothing does. */
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
		reply->flags = TCP_PSH | TCP_ACK | fin;
		reply->has_response = true;
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

static __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static void turn_ethernet(struct ethhdr *eth)
{
	struct ethhdr old = *eth;

	__builtin_memcpy(eth->h_dest, old.h_source, sizeof(old.h_source));
	__builtin_memcpy(eth->h_source, old.h_dest, sizeof(old.h_dest));
}

static void write_ipv4(struct iphdr *ip, __u16 tcp_len)
{
	struct iphdr out = {
		.version_ihl = 0x45,
		.tot_len = bpf_htons(sizeof(out) + tcp_len),
		.frag_off = bpf_htons(IP_DF),
		.ttl = TTL,
		.protocol = IPPROTO_TCP,
		.saddr = ip->daddr,
		.daddr = ip->saddr,
	};

	out.check = fold(bpf_csum_diff(0, 0, (__be32 *)&out, sizeof(out), 0));
	*ip = out;
}

static void write_tcp(struct tcphdr *tcp, const struct reply *reply)
{
	struct tcphdr out = {
		.source = tcp->dest,
		.dest = tcp->source,
		.seq = bpf_htonl(reply->seq),
		.ack_seq = bpf_htonl(reply->ack),
		.doff = sizeof(out) / 4 << 4,
		.flags = reply->flags,
		.window = bpf_htons(WINDOW),
	};

	*tcp = out;
}

/* Sum over the IPv4 pseudo-header, to start a TCP checksum with. */
static __u32 pseudo_header_sum(const struct iphdr *ip, __u16 tcp_len)
{
	__be32 pseudo[3] = { ip->saddr, ip->daddr, bpf_htonl(IPPROTO_TCP << 16 | tcp_len) };

	return bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
}

/* Sums the response at `response` onto `sum` once it is written; -1 when it is beyond the frame. */
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
	__u16 tcp_len = sizeof(struct tcphdr) + data_len;
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
	out.tcp->check = fold(sum);
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
