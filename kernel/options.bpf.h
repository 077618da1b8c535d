/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Reads and writes TCP options: of a SYN, of a segment, and of a SYN/ACK. RFC 9293 3.1, RFC 7323,
 * RFC 2018. It does not decide which options to offer.
 */
#ifndef TIDEGATE_OPTIONS_BPF_H
#define TIDEGATE_OPTIONS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "segment.bpf.h"
#include "hook.bpf.h"

enum tcp_option {
	OPTION_END = 0,
	OPTION_NOP = 1,
	OPTION_MSS = 2,
	OPTION_WSCALE = 3,
	OPTION_SACK_PERMITTED = 4,
	OPTION_TIMESTAMP = 8,
};

enum {
	MAX_TCP_HEADER_BYTES = 60,	/* data offset: four bits, in words */
	MAX_TCP_OPTIONS = 16,		/* Linux sends 5 in a SYN, Windows 6; later ones are not read */
	MAX_WSCALE = 14,		/* RFC 7323 2.3 */
	OPTION_INDEX_MASK = 63,
	OPTION_VALUE_BYTES = 10,	/* longest value that is read */
	MAX_OPTION_WORDS = 5,		/* longest that is sent: MSS, timestamps with SACK, window scale */
};

/* A TCP header with its options. The room after its end lets the verifier accept every index. */
struct tcp_bytes {
	__u8 byte[OPTION_INDEX_MASK + 1 + OPTION_VALUE_BYTES];
};

struct tcp_options {
	__u32 tsval;
	__u32 tsecr;
	__u16 mss;			/* 0 if not offered */
	__u8 wscale;
	bool has_wscale;
	bool has_sack;
	bool has_timestamp;
};

static __always_inline __u32 tcp_header_bytes(const struct segment *segment)
{
	return segment->tcp_length - segment->payload_length;
}

static __always_inline bool load(void *ctx, enum hook hook, __u32 offset, void *bytes, __u32 size)
{
	if (hook == HOOK_TC)
		return !bpf_skb_load_bytes(ctx, offset, bytes, size);
	return !bpf_xdp_load_bytes(ctx, offset, bytes, size);
}

/*
 * True when the size is within bounds, for a helper that takes it. Clang would merge both
 * comparisons, or compare a copy. The verifier of Linux 6.1 learns nothing from either.
 */
static __always_inline bool is_within(__u32 *size, __u32 least, __u32 most)
{
	barrier_var(*size);
	if (*size < least)
		return false;
	barrier_var(*size);
	return *size <= most;
}

static __always_inline bool load_tcp(void *ctx, enum hook hook, const struct segment *segment, struct tcp_bytes *tcp)
{
	__u32 size = tcp_header_bytes(segment);

	if (!is_within(&size, sizeof(struct tcp_header), MAX_TCP_HEADER_BYTES))
		return false;
	return load(ctx, hook, segment->l4_offset, tcp->byte, size);
}

static __always_inline __u32 option_u32(const __u8 *byte)
{
	return (__u32)byte[0] << 24 | (__u32)byte[1] << 16 | (__u32)byte[2] << 8 | byte[3];
}

static __always_inline void read_option(const __u8 *option, __u8 size, struct tcp_options *options)
{
	switch (option[0]) {
	case OPTION_MSS:
		if (size == 4)
			options->mss = (__u16)option[2] << 8 | option[3];
		break;
	case OPTION_WSCALE:
		if (size == 3) {
			options->has_wscale = true;
			options->wscale = option[2] > MAX_WSCALE ? MAX_WSCALE : option[2];
		}
		break;
	case OPTION_SACK_PERMITTED:
		options->has_sack = size == 2;
		break;
	case OPTION_TIMESTAMP:
		if (size == 10) {
			options->has_timestamp = true;
			options->tsval = option_u32(option + 2);
			options->tsecr = option_u32(option + 6);
		}
		break;
	}
}

/*
 * As tcp_parse_options(): a malformed option ends the list. It is not static, so that the verifier
 * walks it once and not at each call.
 */
__noinline int read_options(const struct tcp_bytes *tcp, __u32 size, struct tcp_options *options)
{
	__u32 at = sizeof(struct tcp_header), i;

	if (!tcp || !options)
		return 0;
	for (i = 0; i < MAX_TCP_OPTIONS && at < size; i++) {
		const __u8 *option = &tcp->byte[at & OPTION_INDEX_MASK];

		if (option[0] == OPTION_END)
			break;
		if (option[0] == OPTION_NOP) {
			at++;
			continue;
		}
		if (option[1] < 2 || at + option[1] > size)
			break;
		read_option(option, option[1], options);
		at += option[1];
	}
	return 0;
}

/* Options in wire format, in words. */
struct option_words {
	__be32 word[MAX_OPTION_WORDS];
	__u32 count;
};

/* As tcp_options_write(): MSS always, the others only if the SYN offered them. */
static __always_inline void write_options(const struct tcp_options *options, struct option_words *out)
{
	__u32 pair = OPTION_TIMESTAMP << 8 | 10, count = 0;

	out->word[count++] = bpf_htonl(OPTION_MSS << 24 | 4 << 16 | options->mss);
	if (options->has_timestamp) {
		pair |= options->has_sack ? OPTION_SACK_PERMITTED << 24 | 2 << 16 : OPTION_NOP << 24 | OPTION_NOP << 16;
		out->word[count++] = bpf_htonl(pair);
		out->word[count++] = bpf_htonl(options->tsval);
		out->word[count++] = bpf_htonl(options->tsecr);
	} else if (options->has_sack) {
		out->word[count++] = bpf_htonl(OPTION_NOP << 24 | OPTION_NOP << 16 | OPTION_SACK_PERMITTED << 8 | 2);
	}
	if (options->has_wscale)
		out->word[count++] = bpf_htonl(OPTION_NOP << 24 | OPTION_WSCALE << 16 | 3 << 8 | options->wscale);
	out->count = count;
}

#endif
