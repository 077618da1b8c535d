/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of kernel/counters.h as Rust: build.rs runs the preprocessor, counters.rs includes the
 * output.
 */
#include "../../../kernel/counters.h"

#define KERNEL false
#define BOTH true
#define HIDDEN None
#define SHOWN(FAMILY, VALUE) Some(Shown { family: #FAMILY, value: VALUE })
#define ROW(FIELD, NAME, UNIT, IS_SIMULATED, SHOWN_AS, HELP) \
	Counter { field: #FIELD, name: NAME, unit: UNIT, is_simulated: IS_SIMULATED, shown: SHOWN_AS, help: HELP, read: |stats| stats.FIELD },
#define NAME_ROW(FIELD, NAME, ...) FIELD = NAME,
#define FAMILY_ROW(NAME, LABEL, HELP) Family { name: #NAME, label: LABEL, help: HELP },

impl Counted for ListenerStats {
	const COUNTERS: Rows<Self> = &[LISTENER_COUNTERS(ROW)];
}

impl Counted for PathStats {
	const COUNTERS: Rows<Self> = &[PATH_COUNTERS(ROW)];
}

names! { LISTENER_COUNTERS(NAME_ROW) PATH_COUNTERS(NAME_ROW) }

const FAMILY_ROWS: &[Family] = &[FAMILIES(FAMILY_ROW)];
