/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tells which packets open a connection. REDFavor [RF] protects these. No map, no kernel pointer:
 * the qdisc includes this file, and crates/kernel compiles it for the host.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_PROTECTED_H
#define TIDEGATE_PROTECTED_H

/* The part of a packet in its connection. */
enum packet_kind {
	PACKET_OTHER = 0,			/* opens nothing, or is unknown */
	PACKET_SYN = 1,				/* TCP (RFC 9293), SYN without ACK */
	PACKET_SYN_ACK = 2,
	PACKET_SCTP_INIT = 3,			/* RFC 9260; INIT is alone in its packet, so the first chunk tells */
	PACKET_SCTP_INIT_ACK = 4,
	PACKET_DCCP_REQUEST = 5,		/* RFC 4340 */
	PACKET_DCCP_RESPONSE = 6,
};

/* Protocols that packet_kind() knows, by IANA's numbers. */
enum {
	OPENS_TCP = 6,
	OPENS_DCCP = 33,
	OPENS_SCTP = 132,
};

enum {
	OPENING_BYTES = 14,			/* bytes of a header that packet_kind() reads: up to TCP's flags */

	TCP_FLAGS_AT = 13,
	TCP_FLAG_SYN = 0x02,
	TCP_FLAG_ACK = 0x10,

	DCCP_TYPE_AT = 8,			/* reserved: 3, type: 4, long sequence numbers: 1 */
	DCCP_TYPE_REQUEST = 0,
	DCCP_TYPE_RESPONSE = 1,

	SCTP_CHUNK_AT = 12,			/* type of the first chunk, after the common header */
	SCTP_CHUNK_INIT = 1,
	SCTP_CHUNK_INIT_ACK = 2,
};

/* `header` is the first OPENING_BYTES of the transport header. */
static inline enum packet_kind packet_kind(__u8 protocol, const __u8 *header)
{
	switch (protocol) {
	case OPENS_TCP:
		if (!(header[TCP_FLAGS_AT] & TCP_FLAG_SYN))
			return PACKET_OTHER;
		return header[TCP_FLAGS_AT] & TCP_FLAG_ACK ? PACKET_SYN_ACK : PACKET_SYN;
	case OPENS_DCCP:
		switch (header[DCCP_TYPE_AT] >> 1 & 0xf) {
		case DCCP_TYPE_REQUEST:
			return PACKET_DCCP_REQUEST;
		case DCCP_TYPE_RESPONSE:
			return PACKET_DCCP_RESPONSE;
		}
		return PACKET_OTHER;
	case OPENS_SCTP:
		switch (header[SCTP_CHUNK_AT]) {
		case SCTP_CHUNK_INIT:
			return PACKET_SCTP_INIT;
		case SCTP_CHUNK_INIT_ACK:
			return PACKET_SCTP_INIT_ACK;
		}
		return PACKET_OTHER;
	}
	return PACKET_OTHER;
}

/* `set` has the bit 1 << kind for each protected kind. */
static inline bool is_protected(__u32 set, enum packet_kind kind)
{
	return kind != PACKET_OTHER && set >> kind & 1;
}

#endif
