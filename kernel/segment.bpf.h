/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Parses a frame into struct segment. Builds the RST that the kernel would send from a closed port.
 *
 * Nothing here touches a context or a map: the caller gives the frame's bounds and stores the
 * answer. Fragments are not reassembled (they go to the kernel). The TCP checksum is not verified.
 */
#ifndef TIDEGATE_SEGMENT_BPF_H
#define TIDEGATE_SEGMENT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "headers.h"

enum {
	MAX_VLAN_TAGS = 2,		/* 802.1ad: one service tag, one customer tag */
	MAX_EXTENSIONS = 6,		/* RFC 8200 section 4.1 lists six before TCP */
	MAX_HEADER_BYTES = 1024,	/* last place where a header may start; longer chains go to the kernel */
	MAX_L2_BYTES = 14 + 4 * MAX_VLAN_TAGS,
	DSCP_MASK = 0xfc,		/* the rest of the byte is ECN */
	FLOW_LABEL_MASK = 0xfffff,
};

/* An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. */
struct address {
	__be32 word[4];
};

/*
 * The parts of a TCP segment that decision and answer need. Numbers are in host order unless they
 * are __be.
 */
struct segment {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u32 seq;
	__u32 ack;
	__u32 payload_length;		/* bytes */
	__u32 frame_length;		/* bytes, with padding after the packet */
	__u32 flow_label;		/* 0 for IPv4 */
	__u16 l3_offset;		/* bytes from the start of the frame */
	__u16 l4_offset;
	__u16 tcp_length;		/* header and payload, bytes */
	__sum16 checksum;		/* as in the frame */
	__u8 flags;
	__u8 traffic_class;		/* DSCP and ECN */
	bool is_ipv6;
	__u8 mac[12];			/* destination, source */
};

enum parsed {
	PARSED_TCP,
	PARSED_NOT_IP,			/* also a frame with more than two VLAN tags */
	PARSED_NOT_TCP,
	PARSED_FRAGMENT,
	PARSED_MALFORMED,		/* cut short, or with contradicting lengths */
};

struct frame {
	void *data;
	void *data_end;
	__u32 length;			/* all bytes; data_end - data may be less in a socket buffer */
};

/* `size` bytes at `offset`, or NULL when the linear part ends before. */
static __always_inline void *frame_at(const struct frame *frame, __u32 offset, __u32 size)
{
	void *header;

	if (offset > MAX_HEADER_BYTES)
		return NULL;
	header = frame->data + offset;
	if (header + size > frame->data_end)
		return NULL;
	return header;
}

/* Bytes of a TCP header; 0 if they exceed `length`, the bytes from there on. */
static __always_inline __u32 data_offset_of(const struct tcp_header *tcp, __u32 length)
{
	__u32 bytes = (tcp->offset >> 4) * 4;

	return bytes < sizeof(*tcp) || bytes > length ? 0 : bytes;
}

/*
 * The TCP header of a plain frame, or NULL. A plain frame is no fragment. It has no VLAN tag, IPv4
 * options, IPv6 extension headers or contradicting lengths. The function parse_frame() finds the
 * same header, but also fills a segment.
 */
static __always_inline const struct tcp_header *find_plain_tcp(const struct frame *frame)
{
	const struct ethernet_header *ethernet = frame_at(frame, 0, sizeof(*ethernet));
	const struct tcp_header *tcp;
	const struct ipv4_header *ipv4;
	const struct ipv6_header *ipv6;
	__u32 offset = sizeof(*ethernet), length;

	if (!ethernet)
		return NULL;
	if (ethernet->ethertype == bpf_htons(ETHERTYPE_IPV4)) {
		ipv4 = frame_at(frame, offset, sizeof(*ipv4));
		if (!ipv4 || ipv4->version_ihl != (4 << 4 | sizeof(*ipv4) / 4) || ipv4->protocol != PROTOCOL_TCP ||
		    ipv4->fragment & bpf_htons(IPV4_FRAGMENT_BITS))
			return NULL;
		offset += sizeof(*ipv4);
		length = bpf_ntohs(ipv4->total_length) - sizeof(*ipv4);
	} else if (ethernet->ethertype == bpf_htons(ETHERTYPE_IPV6)) {
		ipv6 = frame_at(frame, offset, sizeof(*ipv6));
		if (!ipv6 || bpf_ntohl(ipv6->version_class_label) >> 28 != 6 || ipv6->next_header != PROTOCOL_TCP)
			return NULL;
		offset += sizeof(*ipv6);
		length = bpf_ntohs(ipv6->payload_length);
	} else {
		return NULL;
	}
	tcp = frame_at(frame, offset, sizeof(*tcp));
	/*
	 * In 32 bits, so that an IPv4 packet shorter than its header becomes longer than any frame.
	 */
	if (!tcp || !data_offset_of(tcp, length) || length > frame->length - offset)
		return NULL;
	return tcp;
}

static __always_inline bool is_vlan(__u16 ethertype)
{
	return ethertype == ETHERTYPE_8021Q || ethertype == ETHERTYPE_8021AD;
}

static __always_inline enum parsed parse_tcp(const struct frame *frame, __u32 length, struct segment *segment)
{
	const struct tcp_header *tcp = frame_at(frame, segment->l4_offset, sizeof(*tcp));
	__u32 header_length;

	if (!tcp)
		return PARSED_MALFORMED;
	header_length = data_offset_of(tcp, length);
	if (!header_length)
		return PARSED_MALFORMED;
	segment->source_port = tcp->source;
	segment->destination_port = tcp->destination;
	segment->seq = bpf_ntohl(tcp->seq);
	segment->ack = bpf_ntohl(tcp->ack);
	segment->checksum = tcp->checksum;
	segment->flags = tcp->flags;
	segment->tcp_length = length;
	segment->payload_length = length - header_length;
	return PARSED_TCP;
}

static __always_inline enum parsed parse_ipv4(const struct frame *frame, struct segment *segment)
{
	const struct ipv4_header *ip = frame_at(frame, segment->l3_offset, sizeof(*ip));
	__u32 header_length, total_length;

	if (!ip || ip->version_ihl >> 4 != 4)
		return PARSED_MALFORMED;
	header_length = (ip->version_ihl & 0xf) * 4;
	total_length = bpf_ntohs(ip->total_length);
	if (header_length < sizeof(*ip) || total_length < header_length ||
	    segment->l3_offset + total_length > frame->length)
		return PARSED_MALFORMED;
	if (ip->fragment & bpf_htons(IPV4_FRAGMENT_BITS))
		return PARSED_FRAGMENT;
	if (ip->protocol != PROTOCOL_TCP)
		return PARSED_NOT_TCP;
	segment->source.word[2] = bpf_htonl(0xffff);
	segment->source.word[3] = ip->source;
	segment->destination.word[2] = bpf_htonl(0xffff);
	segment->destination.word[3] = ip->destination;
	segment->traffic_class = ip->tos;
	segment->l4_offset = segment->l3_offset + header_length;
	return parse_tcp(frame, total_length - header_length, segment);
}

/*
 * Steps over the extension headers that may come before TCP. Others (fragment, AH, ESP, ...) go to
 * the kernel. A routing header with segments left means that another host is the destination.
 */
static __always_inline enum parsed skip_extensions(const struct frame *frame, __u8 next_header, __u32 *offset)
{
	const struct ipv6_extension *extension;
	int i;

	for (i = 0; i <= MAX_EXTENSIONS; i++) {
		if (next_header == PROTOCOL_TCP)
			return PARSED_TCP;
		if (next_header == PROTOCOL_FRAGMENT)
			return PARSED_FRAGMENT;
		if (next_header != PROTOCOL_DESTINATION && next_header != PROTOCOL_ROUTING &&
		    (next_header != PROTOCOL_HOP_BY_HOP || i != 0))
			return PARSED_NOT_TCP;
		extension = frame_at(frame, *offset, sizeof(*extension));
		if (!extension)
			return PARSED_MALFORMED;
		if (next_header == PROTOCOL_ROUTING && extension->segments_left)
			return PARSED_NOT_TCP;
		next_header = extension->next_header;
		*offset += (extension->length + 1) * 8;
	}
	return PARSED_NOT_TCP;
}

static __always_inline enum parsed parse_ipv6(const struct frame *frame, struct segment *segment)
{
	const struct ipv6_header *ip = frame_at(frame, segment->l3_offset, sizeof(*ip));
	__u32 offset = segment->l3_offset + sizeof(*ip), end, word;
	enum parsed parsed;

	if (!ip)
		return PARSED_MALFORMED;
	word = bpf_ntohl(ip->version_class_label);
	end = offset + bpf_ntohs(ip->payload_length);
	if (word >> 28 != 6 || end > frame->length)
		return PARSED_MALFORMED;
	segment->is_ipv6 = true;
	__builtin_memcpy(&segment->source, ip->source, sizeof(ip->source));
	__builtin_memcpy(&segment->destination, ip->destination, sizeof(ip->destination));
	segment->traffic_class = word >> 20;
	segment->flow_label = word & FLOW_LABEL_MASK;
	parsed = skip_extensions(frame, ip->next_header, &offset);
	if (parsed != PARSED_TCP)
		return parsed;
	if (offset > end)
		return PARSED_MALFORMED;
	segment->l4_offset = offset;
	return parse_tcp(frame, end - offset, segment);
}

/*
 * Fills `segment`, which the caller has zeroed. Its contents count only when the result is
 * PARSED_TCP.
 */
static __always_inline enum parsed parse_frame(const struct frame *frame, struct segment *segment)
{
	const struct ethernet_header *ethernet = frame_at(frame, 0, sizeof(*ethernet));
	const struct vlan_tag *tag;
	__u32 offset = sizeof(*ethernet);
	__u16 ethertype;
	int i;

	if (!ethernet)
		return PARSED_MALFORMED;
	segment->frame_length = frame->length;
	__builtin_memcpy(segment->mac, ethernet, sizeof(segment->mac));
	ethertype = bpf_ntohs(ethernet->ethertype);
	for (i = 0; i < MAX_VLAN_TAGS && is_vlan(ethertype); i++) {
		tag = frame_at(frame, offset, sizeof(*tag));
		if (!tag)
			return PARSED_MALFORMED;
		ethertype = bpf_ntohs(tag->ethertype);
		offset += sizeof(*tag);
	}
	segment->l3_offset = offset;
	if (ethertype == ETHERTYPE_IPV4)
		return parse_ipv4(frame, segment);
	if (ethertype == ETHERTYPE_IPV6)
		return parse_ipv6(frame, segment);
	return PARSED_NOT_IP;
}

/* The parts of an answer that come from the host, not from the SYN. */
struct answer_style {
	__u8 ttl;			/* TTL or hop limit */
	__u32 flow_label;
	bool partial_checksum;		/* the device adds the sum from the TCP header on */
};

/* An answer, from the IP header to the end of the TCP header without options. */
struct answer {
	union {
		struct {
			struct ipv4_header ip;
			struct tcp_header tcp;
		} v4;
		struct {
			struct ipv6_header ip;
			struct tcp_header tcp;
		} v6;
	};
};

_Static_assert(sizeof(struct answer) == IPV6_HEADER_BYTES + TCP_HEADER_BYTES, "no padding: it goes on the wire");

static __always_inline __u32 sum_words(const void *bytes, __u32 size)
{
	const __u16 *words = bytes;
	__u32 sum = 0, i;

	for (i = 0; i < size / 2; i++)
		sum += words[i];
	return sum;
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/*
 * The pseudo-header's sum of a segment between the same two addresses. For IPv4 only the last word
 * counts, because the rest is the mapped form.
 */
static __always_inline __u32 sum_pseudo_header(const struct segment *segment, __u32 tcp_length)
{
	__u32 sum = bpf_htons(PROTOCOL_TCP) + bpf_htons(tcp_length);

	if (!segment->is_ipv6)
		return sum + sum_words(&segment->source.word[3], 4) + sum_words(&segment->destination.word[3], 4);
	return sum + sum_words(&segment->source, 16) + sum_words(&segment->destination, 16);
}

/*
 * True when the checksum covers only the pseudo header: the sender has left the rest to a device.
 * By chance also for one segment in 65,536.
 */
static __noinline __attribute__((unused)) int has_pseudo_sum(const struct segment *segment)
{
	return segment->checksum == fold(sum_pseudo_header(segment, segment->tcp_length));
}

/*
 * Fills the IP header of an answer, as ip_send_unicast_reply() does for tcp_v4_send_reset(): DF set
 * and id 0. Differs: the kernel echoes the options record route, timestamp and source route. This
 * answer has no options.
 */
static __always_inline void build_ipv4(const struct segment *segment, const struct answer_style *style, __u8 traffic_class,
				       __u32 tcp_bytes, struct ipv4_header *ip)
{
	ip->version_ihl = 4 << 4 | sizeof(*ip) / 4;
	ip->tos = traffic_class;
	ip->total_length = bpf_htons(sizeof(*ip) + tcp_bytes);
	ip->fragment = bpf_htons(IPV4_DONT_FRAGMENT);
	ip->ttl = style->ttl;
	ip->protocol = PROTOCOL_TCP;
	ip->source = segment->destination.word[3];
	ip->destination = segment->source.word[3];
	ip->checksum = ~fold(sum_words(ip, sizeof(*ip)));
}

/* Fills the IP header of an answer, as ip6_xmit() does: no extension headers. */
static __always_inline void build_ipv6(const struct segment *segment, const struct answer_style *style, __u8 traffic_class,
				       __u32 tcp_bytes, struct ipv6_header *ip)
{
	ip->version_class_label = bpf_htonl(6u << 28 | (__u32)traffic_class << 20 | style->flow_label);
	ip->payload_length = bpf_htons(tcp_bytes);
	ip->next_header = PROTOCOL_TCP;
	ip->hop_limit = style->ttl;
	__builtin_memcpy(ip->source, &segment->destination, sizeof(ip->source));
	__builtin_memcpy(ip->destination, &segment->source, sizeof(ip->destination));
}

/*
 * Fills the checksum of a TCP header whose other fields are set. `options_sum`: the sum of the
 * options that follow.
 */
static __always_inline void sum_tcp(const struct segment *segment, const struct answer_style *style, __u32 options_sum,
				    __u32 tcp_bytes, struct tcp_header *tcp)
{
	__u32 sum = sum_pseudo_header(segment, tcp_bytes);

	if (style->partial_checksum)
		tcp->checksum = fold(sum);
	else
		tcp->checksum = ~fold(sum + options_sum + sum_words(tcp, sizeof(*tcp)));
}

/*
 * RFC 9293 3.10.7.1: a segment with ACK gets the seq that it waits for. A segment without ACK gets
 * seq 0, and an ack of all that it occupied.
 */
static __always_inline void build_reset_tcp(const struct segment *segment, const struct answer_style *style,
					    struct tcp_header *tcp)
{
	tcp->source = segment->destination_port;
	tcp->destination = segment->source_port;
	if (segment->flags & TCP_ACK) {
		tcp->seq = bpf_htonl(segment->ack);
		tcp->flags = TCP_RST;
	} else {
		tcp->ack = bpf_htonl(segment->seq + 1 + segment->payload_length);
		tcp->flags = TCP_RST | TCP_ACK;
	}
	tcp->offset = sizeof(*tcp) / 4 << 4;
	sum_tcp(segment, style, 0, sizeof(*tcp), tcp);
}

/*
 * Fills `answer`, which the caller has zeroed, with a RST. It has the SYN's DSCP, and no ECN bits.
 */
static __always_inline void build_reset(const struct segment *segment, const struct answer_style *style,
					struct answer *answer)
{
	__u8 traffic_class = segment->traffic_class & DSCP_MASK;

	if (segment->is_ipv6) {
		build_ipv6(segment, style, traffic_class, sizeof(answer->v6.tcp), &answer->v6.ip);
		build_reset_tcp(segment, style, &answer->v6.tcp);
	} else {
		build_ipv4(segment, style, traffic_class, sizeof(answer->v4.tcp), &answer->v4.ip);
		build_reset_tcp(segment, style, &answer->v4.tcp);
	}
}

/* Bytes of the SYN's IPv4 options or IPv6 extension headers; the answer has none. */
static __always_inline __u32 excess_bytes(const struct segment *segment)
{
	__u32 header_bytes = segment->is_ipv6 ? IPV6_HEADER_BYTES : IPV4_HEADER_BYTES;

	return segment->l4_offset - segment->l3_offset - header_bytes;
}

/* The SYN's two Ethernet addresses, swapped. */
static __always_inline void swap_macs(const struct segment *segment, __u8 *mac)
{
	__builtin_memcpy(mac, segment->mac + 6, 6);
	__builtin_memcpy(mac + 6, segment->mac, 6);
}

#endif
