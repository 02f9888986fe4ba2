//! Expressions of chat templates: methods, filters, tests, and how values are printed. Expected: what
//! jinja2 gave for tests/text/expressions.py.

use oxpipe::text::{ChatRequest, ChatTemplate, SpecialTokens};
use serde_json::Value;

#[test]
fn expressions_are_what_jinja_makes_of_them() {
    let recorded: Value = serde_json::from_str(include_str!("expressions.json")).unwrap();
    let extra = recorded["variables"].to_string();
    let renderings = recorded["renderings"].as_array().unwrap();
    assert!(renderings.len() > 250);
    let mut wrong = Vec::new();
    for rendering in renderings {
        let [template, expected] = ["template", "text"].map(|key| rendering[key].as_str().unwrap());
        let request = ChatRequest {
            messages: "[]",
            extra: Some(&extra),
            ..ChatRequest::default()
        };
        let rendered = ChatTemplate::new("expressions", template, &SpecialTokens::default())
            .and_then(|parsed| parsed.render(&request));
        match rendered {
            Ok(text) if text == expected => {}
            Ok(text) => wrong.push(format!("{template}\n  {text:?}\n  {expected:?}")),
            Err(error) => wrong.push(format!("{template}\n  {error}\n  {expected:?}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}\n{}",
        wrong.len(),
        renderings.len(),
        wrong.join("\n")
    );
}
