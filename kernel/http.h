/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The length of a response, from its own header: Content-Length of HTTP/1 in clear text (RFC 9112
 * section 6). The code reads byte by byte, because a BPF program cannot search. No map, no clock,
 * no kernel pointer.
 *
 * The length is unknown for a chunked response, HTTP/2, TLS, and two lengths that differ. A
 * response to HEAD has a length and no body. This code does not see the request, so that connection
 * keeps a wrong length until its next response.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_HTTP_H
#define TIDEGATE_HTTP_H

enum {
	HTTP_STATUS_BYTES = 13,		/* "HTTP/1.1 200 " */
	HTTP_HEADER_BYTES = 1024,	/* longest part of a header that is read */
	HTTP_NAME_BYTES = 15,		/* "content-length:" */
	HTTP_DIGITS = 18,		/* most digits of a length: it stays below 2^60 */
};

/* The state of the reader. It starts as all 0. */
struct http_header {
	__u64 length;			/* value of Content-Length */
	__u32 bytes;			/* header with its blank line; 0 until that line was read */
	__u32 matched;			/* bytes of the name that match the start of this line */
	__u32 column;			/* bytes of this line so far */
	__u32 digits;			/* digits of the length so far */
	__u32 is_over;			/* a blank came after the digits */
	__u32 is_known;			/* a length was read */
	__u32 is_wrong;			/* the length is no number, too large, or given twice */
	__u32 reserved;
};

static const char HTTP_LENGTH_NAME[HTTP_NAME_BYTES + 1] = "content-length:";

/*
 * True when the header of this response may give a length. `status` is its first HTTP_STATUS_BYTES
 * bytes. A response of class 1xx is followed by another one. Responses 204 and 304 have no body,
 * whatever their header says.
 */
static inline bool http_has_length(const __u8 *status)
{
	if (status[0] != 'H' || status[1] != 'T' || status[2] != 'T' || status[3] != 'P' || status[4] != '/' ||
	    status[5] != '1' || status[6] != '.' || status[8] != ' ' || status[12] != ' ')
		return false;
	if (status[9] == '1')
		return false;
	return !(status[9] == '2' && status[10] == '0' && status[11] == '4') &&
	       !(status[9] == '3' && status[10] == '0' && status[11] == '4');
}

/*
 * Reads the next byte, at this offset from the header's start. True: the rest of the header is not
 * needed.
 */
static inline bool http_read(struct http_header *header, __u8 byte, __u32 offset)
{
	__u8 lower = byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;

	if (byte == '\n') {
		if (!header->column)
			header->bytes = offset + 1;
		if (header->matched == HTTP_NAME_BYTES) {
			header->is_wrong |= !header->digits;
			header->is_known = true;
		}
		header->column = 0;
		header->matched = 0;
		return header->bytes || header->is_wrong;
	}
	if (byte == '\r')
		return false;
	if (header->matched == HTTP_NAME_BYTES) {
		if (byte >= '0' && byte <= '9') {
			/*
			 * A second length, a number after another one, or one with too many digits.
			 */
			header->is_wrong |= header->is_known || header->is_over || header->digits >= HTTP_DIGITS;
			header->length = header->length * 10 + (byte - '0');
			header->digits++;
		} else if (byte == ' ' || byte == '\t') {
			header->is_over = header->digits > 0;
		} else {
			header->is_wrong = true;
		}
	} else if (header->matched == header->column && header->matched < HTTP_NAME_BYTES &&
		   lower == HTTP_LENGTH_NAME[header->matched & HTTP_NAME_BYTES]) {
		header->matched++;
	}
	header->column++;
	return header->is_wrong;
}

/*
 * Bytes of the response, header and body; 0: unknown. `read`: bytes of it that were read. They
 * stand for the header until its blank line was seen.
 */
static inline __u64 http_response_bytes(const struct http_header *header, __u32 read)
{
	if (!header->is_known || header->is_wrong)
		return 0;
	return header->length + (header->bytes ? header->bytes : read);
}

#endif
