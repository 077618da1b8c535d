/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Shortest response first [SH06]: decides in which band of an uplink a segment waits. Band 0 is
 * sent first. A band is a range of bytes that the response still has to send, this segment's among
 * them. No map, no clock, no kernel pointer.
 *
 * A size comes from one of several sources. A source is dropped when it proves wrong. Once more was
 * sent than it said, the size is unknown.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_BANDS_H
#define TIDEGATE_BANDS_H

enum {
	MAX_BANDS = 8,			/* priorities of HTB, TC_HTB_NUMPRIO */
	MAX_CUTOFFS = MAX_BANDS - 1,
};

#define MOST_LEFT (1ull << 62)	/* bytes; larger sizes count as this */

/* The source of a response's size. A higher one goes before a lower one. */
enum size_source {
	SOURCE_ATTAINED = 0,		/* unknown: bytes already sent stand for it ([SH06] 7: LAS) */
	SOURCE_BUFFERED = 1,		/* unknown: bytes in the send buffer, or bytes sent while that is full */
	SOURCE_SENDFILE = 2,		/* the kernel, at sendfile(2); of one call, and a response may take several */
	SOURCE_LENGTH = 3,		/* Content-Length of an HTTP/1 response in clear */
	SOURCE_TOLD = 4,		/* the program, by the socket option TIDEGATE_BYTES_TO_COME */
};

enum {
	SIZE_SOURCES = SOURCE_TOLD + 1,
};

/*
 * Upper bounds of the bands, ascending. Band i has responses with bytes[i] bytes left or fewer.
 * Band `count` has those above the last bound.
 */
struct cutoffs {
	__u64 bytes[MAX_CUTOFFS];
	__u32 count;			/* number of bands minus 1, up to MAX_CUTOFFS */
	__u32 reserved;
};

/*
 * A data segment on its way to the queue. Sequence numbers are as in RFC 9293, in host byte order.
 */
struct outgoing {
	__u32 seq;			/* of its first byte */
	__u32 end;			/* after its last byte */
	__u32 rcv_nxt;			/* of its connection */
	__u32 write_seq;		/* after the last byte that the program has written */
	__u32 is_blocked;		/* the send buffer is full, and the program waits */
	__u32 has_waiting;		/* earlier segments of its connection are still queued below TCP */
};

/* The response that a connection sends. All 0 before it has sent anything. */
struct response {
	__u64 told;			/* bytes left from `told_at` on, as `source` said; 0: unknown or all sent */
	__u32 told_at;
	__u32 start;			/* sequence number of its first byte */
	__u32 sent;			/* after the last byte sent */
	__u32 rcv_nxt;			/* of the connection, when the response began */
	__u8 source;			/* enum size_source */
	__u8 band;			/* of its last segment */
	__u8 is_begun;
	__u8 is_drained;		/* its last segment left nothing unsent */
	__u8 is_ahead;			/* the told bytes are unsent: they may be of the next response */
	__u8 reserved[3];
};

static inline bool comes_before(__u32 seq, __u32 other)
{
	return (__s32)(seq - other) < 0;
}

static inline __u32 band_of(const struct cutoffs *cutoffs, __u64 bytes)
{
	__u32 band;

	for (band = 0; band < MAX_CUTOFFS; band++)
		if (band >= cutoffs->count || bytes <= cutoffs->bytes[band])
			break;
	return band;
}

/*
 * True when a segment begins a response. The client has sent something since the last response
 * began, and that one had nothing more to send. Other input (HTTP/2's WINDOW_UPDATE, an upload)
 * begins none.
 */
static inline bool begins_response(const struct response *response, const struct outgoing *segment)
{
	if (!response->is_begun)
		return true;
	return response->is_drained && segment->rcv_nxt != response->rcv_nxt &&
	       !comes_before(segment->seq, response->sent);
}

/* A source says how many bytes are left from `seq` on. The word of a better source stays. */
static inline void tell_size(struct response *response, enum size_source source, __u32 seq, __u64 bytes)
{
	if (response->told && source < response->source)
		return;
	response->source = source;
	response->told = bytes < MOST_LEFT ? bytes : MOST_LEFT;
	response->told_at = seq;
	response->is_ahead = true;
}

/*
 * Begins a response at a segment. A size told for unsent bytes is of this response, and stays. The
 * last band does not count, because the client asks again only after it has received that response.
 */
static inline void begin_response(struct response *response, const struct outgoing *segment)
{
	response->band = 0;
	if (!response->is_ahead)
		response->told = 0;
	response->is_begun = true;
	response->start = segment->seq;
	response->sent = segment->seq;
	response->rcv_nxt = segment->rcv_nxt;
}

/*
 * True when a response's header may begin with this segment. That is at the response's first byte,
 * or after a response whose size was told. A repeated segment was read before.
 */
static inline bool may_begin_header(const struct response *response, const struct outgoing *segment)
{
	if (segment->seq != response->sent)
		return false;
	return segment->seq == response->start ||
	       (!response->told && response->source >= SOURCE_SENDFILE && segment->seq == response->told_at);
}

/*
 * Bytes left, the segment's among them. `by_buffer`: an unknown size is guessed from the send
 * buffer. A full buffer hides the rest; then the bytes already sent are the better guess.
 */
static inline __u64 bytes_left(struct response *response, const struct outgoing *segment, bool by_buffer)
{
	/* Negative for a segment before `told_at`, such as a repeated one. */
	__s64 since_told = (__s32)(segment->seq - response->told_at);
	__u32 buffered = segment->write_seq - segment->seq, attained = 0;

	/* `told_at` is meaningless while `told` is 0. */
	if (response->told && since_told < (__s64)response->told)
		return response->told - since_told;
	response->told = 0;
	if (!comes_before(segment->seq, response->start))
		attained = segment->seq - response->start;
	response->source = by_buffer ? SOURCE_BUFFERED : SOURCE_ATTAINED;
	if (!by_buffer || (segment->is_blocked && attained > buffered))
		return attained;
	return buffered;
}

/*
 * The band of a segment. A connection does not move up while its segments wait in a lower band.
 * Later segments would overtake them.
 */
static inline __u32 next_band(const struct cutoffs *cutoffs, struct response *response,
			      const struct outgoing *segment, __u64 left)
{
	__u32 band = band_of(cutoffs, left);

	if (segment->has_waiting && band < response->band && response->band <= cutoffs->count)
		band = response->band;
	response->band = band;
	return band;
}

static inline void note_sent(struct response *response, const struct outgoing *segment)
{
	__u32 behind = segment->end - response->told_at;

	if (comes_before(response->sent, segment->end))
		response->sent = segment->end;
	response->is_drained = response->sent == segment->write_seq;
	if (!response->told || !comes_before(response->told_at, segment->end))
		return;
	/* The place moves along, because sequence numbers wrap: they compare only within 2 GiB. */
	response->told -= behind < response->told ? behind : response->told;
	response->told_at = segment->end;
	response->is_ahead = false;
}

#endif
