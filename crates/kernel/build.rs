//! Reads the headers of kernel/ that need no kernel: bindgen makes types of them, the C compiler
//! their functions, and the preprocessor a table of the counters.

use std::env;
use std::fs;
use std::path::PathBuf;

use bindgen::callbacks::{EnumVariantValue, ParseCallbacks};

/// As seen from here, where cargo runs this and the compiler.
const HEADERS: &str = "../../kernel";
/// Those that go in and out of functions; all others are numbers.
const ENUMS: [&str; 11] = [
    "verdict",
    "trigger",
    "full",
    "on_fin",
    "outcome",
    "back",
    "packet_kind",
    "red_action",
    "redfavor_action",
    "size_source",
    "close_action",
];

fn main() {
    println!("cargo::rerun-if-changed={HEADERS}");
    println!("cargo::rerun-if-changed=src/headers.h");
    println!("cargo::rerun-if-changed=src/counters.h");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let wrappers = out.join("wrappers.c");
    let bindings = bindgen::Builder::default()
        .header("src/headers.h")
        .clang_args([&format!("-I{HEADERS}"), "-fparse-all-comments"])
        .allowlist_file(format!("{HEADERS}/[a-z]*\\.h"))
        .rustified_enum(ENUMS.join("|"))
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        // A struct with padding would have fields more, which nobody initialises: it does not
        // compile.
        .explicit_padding(true)
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .parse_callbacks(Box::new(Names))
        .generate()
        .unwrap_or_else(|error| panic!("read kernel/*.h with libclang: {error}"));
    bindings.write_to_file(out.join("bindings.rs")).expect("write bindings.rs");
    cc::Build::new()
        .file(wrappers)
        .includes([".", HEADERS])
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("kernel");
    let counters = cc::Build::new().file("src/counters.h").flag("-P").expand();
    fs::write(out.join("counters.rs"), counters).expect("write counters.rs");
}

/// Names and comments as Rust has them.
#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    /// `VERDICT_KERNEL_COOKIE` is `Verdict::KernelCookie`.
    fn enum_variant_name(&self, name: Option<&str>, variant: &str, _: EnumVariantValue) -> Option<String> {
        let is_ours = ENUMS.contains(&name?.trim_start_matches("enum "));
        is_ours.then(|| camel_case(variant.split_once('_').expect("it has a prefix").1))
    }

    /// In one line, or what is set in would be an example in Rust, and brackets a link.
    fn process_comment(&self, comment: &str) -> Option<String> {
        let words: Vec<&str> = comment.split_whitespace().filter(|word| *word != "*").collect();
        let escape = |text: String, sign| text.replace(sign, &format!("\\{sign}"));
        Some(['[', ']', '<', '>', '*'].into_iter().fold(words.join(" "), escape))
    }
}

fn camel_case(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..].to_lowercase();
    name.split('_').filter(|word| !word.is_empty()).map(capital).collect()
}
