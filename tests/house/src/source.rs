//! Rules on Rust source, judged by its tokens: comments and strings do not count.

use crate::Violation;
use crate::files::File;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::str::FromStr;

/// Modules of `std` that reach the world, or that only make sense in something that does.
const WORLD: [&str; 10] = [
    "env", "fs", "io", "net", "os", "process", "sync", "thread", "time", "path",
];
/// Macros that reach the world.
const PRINTING: [&str; 6] = [
    "print",
    "println",
    "eprint",
    "eprintln",
    "dbg",
    "thread_local",
];

/// Where `unsafe` may stand: each a directory or a file, and why.
pub const UNSAFE_ALLOWED: [(&str, &str); 9] = [
    (
        "crates/linux/src/sys/",
        "the live kernel: one function a call",
    ),
    (
        "crates/bench/src/sys.rs",
        "the worker maps and touches memory by address",
    ),
    (
        "crates/bench/src/sys/",
        "the worker maps and touches memory by address",
    ),
    (
        "crates/hugetlb/src/sys.rs",
        "the C library: one function a call",
    ),
    (
        "crates/hugetlb/src/sys/",
        "memory that is made once and never freed",
    ),
    (
        "crates/hugetlb/src/abi.rs",
        "what C programs call, and the pointers they pass",
    ),
    (
        "tests/workers/",
        "programs that hold memory while tests manage it",
    ),
    ("xtask/", "guests: memory files and process groups"),
    (
        "tests/qemu-plugin/src/ffi.rs",
        "QEMU calls the plugin and is called by it, in C",
    ),
];

/// A token, flattened: what it says and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

/// Which part of a file is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    WithoutTests,
}

/// The tokens of a file, groups opened up. Text that is no Rust is a violation, not an empty list.
fn tokens(file: &File, part: Part) -> Result<Vec<Token>, Violation> {
    let stream = TokenStream::from_str(&file.text)
        .map_err(|error| Violation::of(&file.path, format!("is no Rust: {error}")))?;
    let mut flat = Vec::new();
    flatten(stream, part, &mut flat);
    Ok(flat)
}

fn flatten(stream: TokenStream, part: Part, flat: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < trees.len() {
        if part == Part::WithoutTests && is_test_attribute(&trees[at..]) {
            at = end_of_item(&trees, at);
            continue;
        }
        let line = trees[at].span().start().line;
        match &trees[at] {
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                flat.push(Token {
                    text: open.to_owned(),
                    line,
                });
                flatten(group.stream(), part, flat);
                let line = group.span_close().start().line;
                flat.push(Token {
                    text: close.to_owned(),
                    line,
                });
            }
            TokenTree::Ident(ident) => flat.push(Token {
                text: ident.to_string(),
                line,
            }),
            TokenTree::Punct(punct) => flat.push(Token {
                text: punct.as_char().to_string(),
                line,
            }),
            // What a literal says is no code; that it stands there is.
            TokenTree::Literal(_) => flat.push(Token {
                text: "\"\"".to_owned(),
                line,
            }),
        }
        at += 1;
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

/// `#[cfg(test)]`
fn is_test_attribute(trees: &[TokenTree]) -> bool {
    match trees {
        [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] => {
            hash.as_char() == '#' && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
        }
        _ => false,
    }
}

/// The first tree after the item that begins at `at`: it ends with braces or a semicolon.
fn end_of_item(trees: &[TokenTree], at: usize) -> usize {
    let ends = |tree: &TokenTree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    trees[at..]
        .iter()
        .position(ends)
        .map_or(trees.len(), |length| at + length + 1)
}

/// Does a file hold only tests?
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Core has no world: no module of `std` that reaches it, nothing that prints.
#[must_use]
pub fn check_worldless(file: &File) -> Vec<Violation> {
    if !file.path.starts_with("crates/core/src/") || is_test_file(&file.path) {
        return Vec::new();
    }
    let tokens = match tokens(file, Part::WithoutTests) {
        Ok(tokens) => tokens,
        Err(wrong) => return vec![wrong],
    };
    let mut wrong = Vec::new();
    for (module, line) in std_modules(&tokens) {
        if WORLD.contains(&module.as_str()) {
            wrong.push(Violation::at(
                &file.path,
                line,
                format!("core has no world: std::{module}"),
            ));
        }
    }
    for pair in tokens.windows(2) {
        if PRINTING.contains(&pair[0].text.as_str()) && pair[1].text == "!" {
            let what = format!("core has no world: {}!", pair[0].text);
            wrong.push(Violation::at(&file.path, pair[0].line, what));
        }
    }
    wrong
}

/// Modules of `std` that are named: by `std::fs` or in `std::{fs, io::Read}`.
fn std_modules(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, window) in tokens.windows(4).enumerate() {
        let [std, one, two, next] = window else {
            continue;
        };
        if std.text != "std" || one.text != ":" || two.text != ":" {
            continue;
        }
        if next.text == "{" {
            found.extend(group_heads(&tokens[at + 4..]));
        } else {
            found.push((next.text.clone(), next.line));
        }
    }
    found
}

/// The first name of each member of a use group, whose opening brace is before `tokens`.
fn group_heads(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut heads = Vec::new();
    let mut depth = 0_u32;
    let mut head = true;
    for token in tokens {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            "," if depth == 0 => head = true,
            name if head && depth == 0 => {
                heads.push((name.to_owned(), token.line));
                head = false;
            }
            _ => {}
        }
    }
    heads
}

/// `unsafe` stands in the modules made for it.
#[must_use]
pub fn check_unsafe(file: &File) -> Vec<Violation> {
    if UNSAFE_ALLOWED
        .iter()
        .any(|(allowed, _)| file.path.starts_with(allowed))
    {
        return Vec::new();
    }
    on_tokens(file, |tokens| {
        let what = "unsafe belongs into crates/linux/src/sys, one function a call";
        tokens
            .iter()
            .filter(|token| token.text == "unsafe")
            .map(|token| Violation::at(&file.path, token.line, what))
            .collect()
    })
}

/// Errors are not swallowed (`map_err(|_| …)`), tests are not switched off (`#[ignore]`).
#[must_use]
pub fn check_honesty(file: &File) -> Vec<Violation> {
    on_tokens(file, |tokens| {
        let find = |shape: &'static [&'static str], what: &'static str| {
            tokens
                .windows(shape.len())
                .filter(|window| {
                    window
                        .iter()
                        .map(|token| token.text.as_str())
                        .eq(shape.iter().copied())
                })
                .map(move |window| Violation::at(&file.path, window[0].line, what))
        };
        let swallowed = find(
            &["map_err", "(", "|", "_", "|"],
            "keeps nothing of the error that it maps",
        );
        let ignored = find(&["#", "[", "ignore"], "a test runs, or does not exist");
        swallowed.chain(ignored).collect()
    })
}

/// Conditions that chain `let` need Rust 1.88, which newer compilers do not tell us; Debian 13 has 1.85.
#[must_use]
pub fn check_let_chains(file: &File) -> Vec<Violation> {
    on_tokens(file, |tokens| {
        let what = "a condition that chains `let` needs Rust 1.88";
        let chained = (0..tokens.len()).filter(|at| is_let_chain(&tokens[*at..]));
        chained
            .map(|at| Violation::at(&file.path, tokens[at].line, what))
            .collect()
    })
}

/// Does a chain begin here: `&& let …`, or `if let … = … && …`?
fn is_let_chain(tokens: &[Token]) -> bool {
    let texts: Vec<&str> = tokens
        .iter()
        .take(3)
        .map(|token| token.text.as_str())
        .collect();
    match texts[..] {
        ["&", "&", "let"] => true,
        ["if" | "while", "let", _] => condition(tokens).windows(2).any(|pair| pair == ["&", "&"]),
        _ => false,
    }
}

/// What is at the top level between the `=` of an `if let` and its block.
fn condition(tokens: &[Token]) -> Vec<&str> {
    let mut depth = 0_u32;
    let mut top = Vec::new();
    for token in tokens {
        match token.text.as_str() {
            "{" if depth == 0 => break,
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            text if depth == 0 => top.push(text),
            _ => {}
        }
    }
    let begin = top.iter().position(|text| *text == "=").unwrap_or(0);
    top.split_off(begin)
}

/// Names of types, traits and modules with their lines, and all identifiers.
pub struct Names {
    /// Of structs, enums, traits, type aliases and modules.
    pub of_items: Vec<(String, usize)>,
    /// All identifiers.
    pub all: Vec<(String, usize)>,
}

/// The names in a file.
///
/// # Errors
/// Where it is no Rust.
pub fn names(file: &File) -> Result<Names, Violation> {
    let tokens = tokens(file, Part::Whole)?;
    let named = |pair: &[Token]| match pair[0].text.as_str() {
        "struct" | "enum" | "trait" | "type" | "mod" => Some((pair[1].text.clone(), pair[1].line)),
        _ => None,
    };
    let is_name = |token: &&Token| {
        token
            .text
            .starts_with(|first: char| first.is_alphabetic() || first == '_')
    };
    Ok(Names {
        of_items: tokens.windows(2).filter_map(named).collect(),
        all: tokens
            .iter()
            .filter(is_name)
            .map(|token| (token.text.clone(), token.line))
            .collect(),
    })
}

fn on_tokens(file: &File, check: impl FnOnce(&[Token]) -> Vec<Violation>) -> Vec<Violation> {
    match tokens(file, Part::Whole) {
        Ok(tokens) => check(&tokens),
        Err(wrong) => vec![wrong],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn lines(wrong: &[Violation]) -> Vec<&str> {
        wrong.iter().map(|wrong| wrong.place.as_str()).collect()
    }

    #[test]
    fn a_world_in_core_is_found_however_it_is_named() {
        for text in [
            "fn f() { std::fs::read(\"x\"); }",
            "use std::time::Instant;",
            "use std::{fmt, collections::{BTreeMap, BTreeSet}, env};",
            "fn f() { println!(\"x\"); }",
            "use {std::thread};",
            "use std::sync::Mutex;",
        ] {
            let wrong = check_worldless(&file("crates/core/src/tick.rs", text));
            assert_eq!(lines(&wrong), ["crates/core/src/tick.rs:1"], "{text}");
        }
    }

    #[test]
    fn a_world_in_tests_comments_strings_and_elsewhere_is_none() {
        let text = "//! std::fs\nuse std::{fmt, collections::BTreeMap};\nconst A: &str = \"std::env\";\n\
                    #[cfg(test)]\nmod tests { use std::fs; fn f() { println!(); } }";
        assert!(check_worldless(&file("crates/core/src/tick.rs", text)).is_empty());
        assert!(check_worldless(&file("crates/linux/src/lib.rs", "use std::fs;")).is_empty());
        assert!(check_worldless(&file("crates/core/src/mega/tests.rs", "use std::fs;")).is_empty());
    }

    #[test]
    fn what_follows_tests_is_judged_again() {
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse std::fs;\nuse std::env;";
        let wrong = check_worldless(&file("crates/core/src/tick.rs", text));
        assert_eq!(lines(&wrong), ["crates/core/src/tick.rs:5"]);
    }

    #[test]
    fn unsafe_is_found_outside_its_modules_alone() {
        let text = "// unsafe\nfn f() {\n    unsafe { g() }\n}";
        assert_eq!(
            lines(&check_unsafe(&file("crates/cli/src/main.rs", text))),
            ["crates/cli/src/main.rs:3"]
        );
        assert!(check_unsafe(&file("crates/linux/src/sys/process.rs", text)).is_empty());
        assert!(
            check_unsafe(&file(
                "crates/cli/src/main.rs",
                "// unsafe\nconst A: &str = \"unsafe\";"
            ))
            .is_empty()
        );
    }

    #[test]
    fn swallowed_errors_and_ignored_tests_are_found() {
        let text = "fn f() { g().map_err(|_| 1)?; g().map_err(|error| error)?; }\n#[ignore = \"slow\"]\n#[test]\nfn t() {}";
        let wrong = check_honesty(&file("crates/linux/src/a.rs", text));
        assert_eq!(
            lines(&wrong),
            ["crates/linux/src/a.rs:1", "crates/linux/src/a.rs:2"]
        );
    }

    #[test]
    fn let_chains_are_found() {
        for text in [
            "fn f() { if let Some(a) = b && a > 0 {} }",
            "fn f() { if a > 0 && let Some(a) = b {} }",
            "fn f() { while let Some(a) = b.c(|d| d) && a {} }",
        ] {
            assert_eq!(check_let_chains(&file("a.rs", text)).len(), 1, "{text}");
        }
        for text in [
            "fn f() { if let Some(a) = b(c && d) { e && f; } }",
            "fn f() { if let &&a = b {} }",
            "fn f() { if a && b { let c = d; } }",
        ] {
            assert!(check_let_chains(&file("a.rs", text)).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_no_rust_is_found() {
        assert_eq!(
            check_unsafe(&file("crates/cli/src/main.rs", "fn f( {")).len(),
            1
        );
    }
}
