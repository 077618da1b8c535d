/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the kind of a packet in a kernel queue, from its IP header to packet_kind(). It decides
 * nothing about the packet.
 *
 * The includer provides vmlinux.h, headers.h, protected.h and qdisc.bpf.h.
 */
#ifndef TIDEGATE_KIND_BPF_H
#define TIDEGATE_KIND_BPF_H

enum {
	MAX_EXTENSIONS = 6,			/* RFC 8200 section 4.1 lists six before the transport header */
	IPV4_OFFSET_BITS = 0x1fff,		/* 0: the first fragment, or the only one */
};

static __always_inline enum packet_kind kind_of_transport(const struct bpf_dynptr *packet, __u32 offset, __u8 protocol)
{
	__u8 space[OPENING_BYTES];
	const __u8 *header = bpf_dynptr_slice(packet, offset, space, sizeof(space));

	return header ? packet_kind(protocol, header) : PACKET_OTHER;
}

static __always_inline enum packet_kind kind_of_ipv4(const struct bpf_dynptr *packet, __u32 offset)
{
	struct ipv4_header space;
	const struct ipv4_header *ip = bpf_dynptr_slice(packet, offset, &space, sizeof(space));

	if (!ip || ip->fragment & bpf_htons(IPV4_OFFSET_BITS))
		return PACKET_OTHER;
	return kind_of_transport(packet, offset + (ip->version_ihl & 0xf) * 4, ip->protocol);
}

static __always_inline bool is_extension(__u8 next_header)
{
	return next_header == PROTOCOL_HOP_BY_HOP || next_header == PROTOCOL_ROUTING || next_header == PROTOCOL_DESTINATION;
}

/* A fragment is PACKET_OTHER, because no packet that opens a connection is fragmented. */
static __always_inline enum packet_kind kind_of_ipv6(const struct bpf_dynptr *packet, __u32 offset)
{
	struct ipv6_extension extension_space;
	const struct ipv6_extension *extension;
	struct ipv6_header space;
	const struct ipv6_header *ip = bpf_dynptr_slice(packet, offset, &space, sizeof(space));
	__u8 next_header;
	int i;

	if (!ip)
		return PACKET_OTHER;
	next_header = ip->next_header;
	offset += sizeof(*ip);
	for (i = 0; i < MAX_EXTENSIONS && is_extension(next_header); i++) {
		extension = bpf_dynptr_slice(packet, offset, &extension_space, sizeof(extension_space));
		if (!extension)
			return PACKET_OTHER;
		next_header = extension->next_header;
		offset += (extension->length + 1) * 8;
	}
	return kind_of_transport(packet, offset, next_header);
}

static __always_inline enum packet_kind kind_of(struct sk_buff *skb)
{
	__u32 offset = skb->network_header - (__u32)(skb->data - skb->head);
	struct bpf_dynptr packet;

	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet))
		return PACKET_OTHER;
	switch (bpf_ntohs(skb->protocol)) {
	case ETHERTYPE_IPV4:
		return kind_of_ipv4(&packet, offset);
	case ETHERTYPE_IPV6:
		return kind_of_ipv6(&packet, offset);
	}
	return PACKET_OTHER;
}

#endif
