/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Shortest response first [SH06]: in which band of an uplink a segment waits. Band 0 is sent first.
 * A band is a range of bytes that the response still has to send, this segment's among them. No
 * map, no clock, no kernel pointer.
 *
 * How many bytes are left is known by one of several sources. A source that turns out wrong is
 * dropped: once more has been sent than it said, the connection is one whose sizes nobody knows.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_BANDS_H
#define TIDEGATE_BANDS_H

enum {
	MAX_BANDS = 8,			/* HTB has as many priorities, TC_HTB_NUMPRIO */
	MAX_CUTOFFS = MAX_BANDS - 1,
};

#define MOST_LEFT (1ull << 62)	/* bytes; a source that says more says this */

/* How it is known how much a response still has to send; a higher one goes before a lower one. */
enum size_source {
	SOURCE_ATTAINED = 0,		/* not known: what it has sent already stands for it ([SH06] 7: least attained service) */
	SOURCE_BUFFERED = 1,		/* not known: what waits in its send buffer, or what it has sent while that is full */
	SOURCE_SENDFILE = 2,		/* the kernel, when the program called sendfile(2): of one call, there may be several */
	SOURCE_LENGTH = 3,		/* Content-Length of an HTTP/1 response in clear */
	SOURCE_TOLD = 4,		/* the program, by the socket option TIDEGATE_BYTES_TO_COME */
};

enum {
	SIZE_SOURCES = SOURCE_TOLD + 1,
};

/*
 * Ascending. A response with bytes[i] bytes left or fewer is in band i; one with more than the
 * last, in band `count`.
 */
struct cutoffs {
	__u64 bytes[MAX_CUTOFFS];
	__u32 count;			/* bands less one, up to MAX_CUTOFFS */
	__u32 reserved;
};

/*
 * A segment with data on its way to the queue. Sequence numbers as in RFC 9293, in the host's byte
 * order.
 */
struct outgoing {
	__u32 seq;			/* of its first byte */
	__u32 end;			/* behind its last byte */
	__u32 rcv_nxt;			/* what its connection has received by now */
	__u32 write_seq;		/* behind the last byte that the program has written */
	__u32 is_blocked;		/* the send buffer is full, and the program waits for it */
	__u32 has_waiting;		/* earlier segments of its connection are still queued below TCP */
};

/* The response that a connection is sending; all 0 for one that has sent nothing. */
struct response {
	__u64 told;			/* bytes left from sequence number `told_at` on, as `source` said; 0: all were sent */
	__u32 told_at;
	__u32 start;			/* sequence number of its first byte */
	__u32 sent;			/* behind the last byte that was sent */
	__u32 rcv_nxt;			/* what its connection had received when it began */
	__u8 source;			/* enum size_source */
	__u8 band;			/* of its last segment */
	__u8 is_begun;
	__u8 is_drained;		/* its last segment left nothing unsent */
	__u8 is_ahead;			/* what was told is of bytes that are not sent yet: of the next response, it may be */
	__u8 reserved[3];
};

static inline bool comes_before(__u32 seq, __u32 other)
{
	return (__s32)(seq - other) < 0;
}

/* The band for so many bytes. */
static inline __u32 band_of(const struct cutoffs *cutoffs, __u64 bytes)
{
	__u32 band;

	for (band = 0; band < MAX_CUTOFFS; band++)
		if (band >= cutoffs->count || bytes <= cutoffs->bytes[band])
			break;
	return band;
}

/*
 * Whether a segment begins a response: the client has sent something since the last one began, and
 * that one had nothing more to send. What comes in meanwhile (HTTP/2's WINDOW_UPDATE, an upload)
 * begins none.
 */
static inline bool begins_response(const struct response *response, const struct outgoing *segment)
{
	if (!response->is_begun)
		return true;
	return response->is_drained && segment->rcv_nxt != response->rcv_nxt &&
	       !comes_before(segment->seq, response->sent);
}

/*
 * A source says how many bytes are left from `seq` on. What a better source has said of this
 * response stays.
 */
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
 * Begins a response at a segment. What was told of bytes that are not sent yet is of this response,
 * and stays. The band of the last one does not: the client asks again once it has that.
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
 * Whether the header of a response may begin with this segment: at its first byte, or behind one
 * whose size was told. A segment that is sent again was read before.
 */
static inline bool may_begin_header(const struct response *response, const struct outgoing *segment)
{
	if (segment->seq != response->sent)
		return false;
	return segment->seq == response->start ||
	       (!response->told && response->source >= SOURCE_SENDFILE && segment->seq == response->told_at);
}

/*
 * Bytes left, those of the segment among them. `by_buffer`: a connection of unknown sizes goes by
 * what waits in its send buffer. While that is full the buffer hides the rest, and what has been
 * sent already is the better guess.
 */
static inline __u64 bytes_left(struct response *response, const struct outgoing *segment, bool by_buffer)
{
	/*
	 * Negative for a segment before the place where the size was told, as one that is sent
	 * again.
	 */
	__s64 since_told = (__s32)(segment->seq - response->told_at);
	__u32 buffered = segment->write_seq - segment->seq, attained = 0;

	/* Where nobody has told a size, `told_at` means nothing. */
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
 * The band of a segment. A connection is not moved up while segments of it are queued in a lower
 * band, because the later ones would overtake them.
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

/* Notes that a segment has been sent. */
static inline void note_sent(struct response *response, const struct outgoing *segment)
{
	__u32 behind = segment->end - response->told_at;

	if (comes_before(response->sent, segment->end))
		response->sent = segment->end;
	response->is_drained = response->sent == segment->write_seq;
	if (!response->told || !comes_before(response->told_at, segment->end))
		return;
	/* The place moves along, because sequence numbers tell no more than 2 GiB apart. */
	response->told -= behind < response->told ? behind : response->told;
	response->told_at = segment->end;
	response->is_ahead = false;
}

#endif
