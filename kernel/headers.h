/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Ethernet, IP and TCP headers as they are on the wire, and their constants. Nothing here parses.
 * Sources: IEEE 802.3, 802.1Q, RFC 791, RFC 8200, RFC 9293.
 *
 * The includer provides the types: vmlinux.h.
 */
#ifndef TIDEGATE_HEADERS_H
#define TIDEGATE_HEADERS_H

/* Ethertypes (16 bits) and IP protocols (8 bits) are two number spaces. Never compare across. */
enum ethertype {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_8021Q = 0x8100,
	ETHERTYPE_IPV6 = 0x86dd,
	ETHERTYPE_8021AD = 0x88a8,
};

enum ip_protocol {
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_TCP = 6,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_DESTINATION = 60,
};

enum tcp_flag {
	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_PSH = 0x08,
	TCP_ACK = 0x10,
};

enum {
	IPV4_FRAGMENT_BITS = 0x3fff,	/* more fragments, offset */
	IPV4_DONT_FRAGMENT = 0x4000,
	IPV6_HEADER_BYTES = 40,
	IPV4_HEADER_BYTES = 20,
	TCP_HEADER_BYTES = 20,
};

struct ethernet_header {
	__u8 destination[6];
	__u8 source[6];
	__be16 ethertype;
};

struct vlan_tag {
	__be16 control;
	__be16 ethertype;
};

struct ipv4_header {
	__u8 version_ihl;		/* version: 4, header length in words: 4 */
	__u8 tos;			/* DSCP: 6, ECN: 2 */
	__be16 total_length;
	__be16 id;
	__be16 fragment;		/* reserved: 1, DF: 1, MF: 1, offset in 8 bytes: 13 */
	__u8 ttl;
	__u8 protocol;
	__sum16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6_header {
	__be32 version_class_label;	/* version: 4, traffic class: 8, flow label: 20 */
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__be32 source[4];
	__be32 destination[4];
};

struct ipv6_extension {
	__u8 next_header;
	__u8 length;			/* in 8 bytes, without the first 8 */
	__u8 routing_type;
	__u8 segments_left;
};

struct tcp_header {
	__be16 source;
	__be16 destination;
	__be32 seq;
	__be32 ack;
	__u8 offset;			/* header length in words: 4, reserved: 4 */
	__u8 flags;
	__be16 window;
	__sum16 checksum;
	__be16 urgent;
};

_Static_assert(sizeof(struct ethernet_header) == 14, "as on the wire");
_Static_assert(sizeof(struct ipv4_header) == IPV4_HEADER_BYTES, "as on the wire");
_Static_assert(sizeof(struct ipv6_header) == IPV6_HEADER_BYTES, "as on the wire");
_Static_assert(sizeof(struct tcp_header) == TCP_HEADER_BYTES, "as on the wire");

#endif
