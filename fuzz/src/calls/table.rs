//! The table of functions, as a text: every function of include/oxpipe.h, in a way in which it can be
//! called with numbers. `functions.rs` is this text, which tests/fuzz_corpus.rs holds to the header.

use std::fmt::Write as _;

/// The table for a header.
pub fn table(header: &str) -> String {
    let functions = functions(&without_comments(header));
    assert!(functions.len() > 100, "found {} functions", functions.len());
    let mut text = String::from(
        "// Generated from include/oxpipe.h; do not edit. `OXP_UPDATE_HEADER=1 cargo test --test fuzz_corpus` writes\n\
         // it anew.\n\nunsafe extern \"C\" {\n",
    );
    for function in &functions {
        let parameters = function.parameters.iter().enumerate();
        let parameters: Vec<_> = parameters
            .map(|(at, (ty, _))| format!("p{at}: {}", rust(ty)))
            .collect();
        let returns = match rust(&function.returns) {
            "()" => String::new(),
            ty => format!(" -> {ty}"),
        };
        let _ = writeln!(text, "fn {}({}){returns};", function.name, parameters.join(", "));
    }
    text += "}\n\npub static FUNCTIONS: &[Function] = &[\n";
    for function in &functions {
        let parameters = function.parameters.iter();
        let parameters: Vec<_> = parameters
            .map(|(ty, name)| format!("({ty:?}, {name:?})"))
            .collect();
        let arguments = function.parameters.iter().enumerate();
        let arguments: Vec<_> = arguments
            .map(|(at, (ty, _))| cast(&format!("a[{at}]"), rust(ty)))
            .collect();
        let name = &function.name;
        let arguments = arguments.join(", ");
        let call = match rust(&function.returns) {
            "()" => format!("{{ {name}({arguments}); 0 }}"),
            "u64" => format!("{name}({arguments})"),
            _ => format!("{name}({arguments}) as u64"),
        };
        let _ = writeln!(
            text,
            "Function {{ name: {name:?}, returns: {:?}, parameters: &[{}],\n    call: |a| {{ let _ = a; unsafe {{ {call} }} }} }},",
            function.returns,
            parameters.join(", ")
        );
    }
    text += "];\n";
    text
}

struct Function {
    returns: String,
    name: String,
    /// Type and name.
    parameters: Vec<(String, String)>,
}

/// Arguments go in general registers on every 64-bit system; a float would not, and has no name here.
fn rust(ty: &str) -> &'static str {
    match ty {
        "void" => "()",
        "int32_t" | "oxp_status" => "i32",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        ty if ty.ends_with('*') || ty.ends_with("_fn") => "usize",
        other => panic!("no way to pass {other}"),
    }
}

fn cast(value: &str, ty: &str) -> String {
    match ty {
        "u64" => value.to_owned(),
        _ => format!("{value} as {ty}"),
    }
}

fn without_comments(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, behind)) = rest.split_once("/*") {
        text += before;
        rest = behind.split_once("*/").map_or("", |(_, behind)| behind);
    }
    text += rest;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

fn functions(header: &str) -> Vec<Function> {
    let declarations = header
        .split(';')
        .filter(|text| text.contains("oxp_") && text.contains('('));
    let declarations = declarations.map(|text| text.rsplit(['{', '}']).next().unwrap_or_default());
    let declarations = declarations.filter(|text| !text.contains("typedef"));
    declarations
        .filter_map(|text| {
            let (head, parameters) = text.split_once('(')?;
            let (returns, name) = type_and_name(head);
            // Macros are written like functions.
            if !name.starts_with("oxp_") {
                return None;
            }
            let parameters = parameters.trim().trim_end_matches(')');
            let parameters = parameters.split(',').filter(|text| text.trim() != "void");
            Some(Function {
                returns,
                name,
                parameters: parameters.map(type_and_name).collect(),
            })
        })
        .collect()
}

fn type_and_name(text: &str) -> (String, String) {
    let words: Vec<_> = text.split_whitespace().collect();
    let text = words.join(" ");
    let at = text.rfind([' ', '*']).map_or(0, |at| at + 1);
    let (ty, name) = text.split_at(at);
    (ty.trim().to_owned(), name.to_owned())
}
