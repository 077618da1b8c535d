/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A histogram whose buckets double: 0, 1, 2 to 3, 4 to 7 and so on. The last bucket has no end.
 *
 * The includer provides __u32, __u64 and __always_inline.
 */
#ifndef TIDEGATE_HISTOGRAM_H
#define TIDEGATE_HISTOGRAM_H

enum {
	BUCKETS = 32,
};

static __always_inline __u32 bucket_of(__u64 value)
{
	__u32 bucket = 0;
	int shift;

	if (value)
		bucket = 1;
	for (shift = 32; shift; shift /= 2) {
		if (value >> shift) {
			value >>= shift;
			bucket += shift;
		}
	}
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

#endif
