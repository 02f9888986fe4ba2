//! Templates that would overflow a stack, fill memory or never end: each is an error, on the
//! smallest of stacks.

use std::time::{Duration, Instant};

use oxpipe::text::{ChatRequest, ChatTemplate, SpecialTokens, TextError};

/// Renders on a thread with a small stack, as a host may.
fn render(source: &str) -> Result<String, TextError> {
    let start = Instant::now();
    let source = source.to_owned();
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    let result = thread
        .spawn(move || {
            let template = ChatTemplate::new("here", &source, &SpecialTokens::default())?;
            template.render(&ChatRequest {
                messages: "[{\"role\": \"user\", \"content\": \"hi\"}]",
                ..ChatRequest::default()
            })
        })
        .unwrap()
        .join()
        .unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "took {:?}",
        start.elapsed()
    );
    result
}

/// The message of an error that is the template's.
fn refused(source: &str) -> String {
    let shown: String = source.chars().take(80).collect();
    match render(source) {
        Err(error @ (TextError::BadTemplate { .. } | TextError::Render { .. })) => error.to_string(),
        other => panic!("{shown}: {:?}", other.map(|text| text.len())),
    }
}

#[test]
fn chains_as_long_as_they_may_be_work_and_longer_ones_are_refused() {
    type Chain = fn(usize) -> String;
    let chains: [Chain; 10] = [
        |n| format!("{{{{ 1{} }}}}", "+1".repeat(n)),
        |n| format!("{{{{ 1{} }}}}", "~1".repeat(n)),
        |n| format!("{{{{ {}1 }}}}", "not ".repeat(n)),
        |n| format!("{{{{ {}1 }}}}", "-".repeat(n)),
        |n| format!("{{{{ 1{} }}}}", "|string".repeat(n)),
        |n| format!("{{{{ x{} }}}}", ".a".repeat(n)),
        |n| format!("{{{{ x{} }}}}", "()".repeat(n)),
        |n| format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(n)),
        |n| format!("{{{{ 1{} }}}}", "**1".repeat(n)),
        |n| format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(n)),
    ];
    for chain in chains {
        for n in [900, 1000, 2000, 4000, 8000, 60_000] {
            let source = chain(n);
            match render(&source) {
                // 900 of anything are within the bounds; what they come to is their own affair.
                Ok(_) => {}
                Err(error @ TextError::BadTemplate { .. }) if n > 900 => {
                    let message = error.to_string();
                    let expected = [
                        "more than 4096",
                        "more than 1000 elif",
                        "expected at most 131072",
                        "recursion",
                    ];
                    assert!(
                        expected.iter().any(|bound| message.contains(bound)),
                        "{n}: {message}"
                    );
                }
                Err(_) => {}
            }
        }
        refused(&chain(60_000));
    }
}

#[test]
fn values_that_hold_themselves_or_grow_deep_are_refused() {
    for use_of_n in [
        "{{ n }}",
        "{{ n|tojson }}",
        "{{ n == m }}",
        "{{ n ~ '' }}",
        "{{ n|string|length }}",
    ] {
        for hold in [
            "{% set n.x = n %}",
            "{% set n.x = [{'a': n}] %}",
            "{% set n.x, y = n, 1 %}",
            "{% set n.x | default(n, true) %}{% endset %}",
            "{% set m.x = n %}",
        ] {
            let source = format!("{{% set n = namespace() %}}{{% set m = namespace() %}}{hold}{use_of_n}");
            let message = refused(&source);
            assert!(
                message.contains("a namespace cannot be put into a namespace"),
                "{message}"
            );
        }
    }
    for grow in ["[n.s]", "{'a': n.s}", "[n.s]|list"] {
        let source = format!(
            "{{% set n = namespace(s=1) %}}{{% for i in range(99999) %}}{{% set n.s = {grow} %}}{{% endfor %}}"
        );
        let message = refused(&source);
        assert!(
            message.contains("more than 200 lists or dicts inside of each other"),
            "{message}"
        );
    }
    // Twice as many values with every step, in a few lists.
    let twice = "{% set n = namespace(s=1) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}";
    assert!(refused(twice).contains("more than 200000 values"));
    assert!(
        refused(&format!("{{% set s = 1 %}}{}", "{% set s = [s, s] %}".repeat(60))).contains("200000 values")
    );
    // As deep as one can get without a variable: each `with` adds what one tag may nest, and
    // each call of a macro as many.
    let deep = |inside: &str| {
        let nested = format!("{}x{}", "[".repeat(40), "]".repeat(40));
        let with = format!("{{% with x = {nested} %}}").repeat(60);
        format!("{with}{inside}{}", "{% endwith %}".repeat(60))
    };
    let source = format!("{{% set x = 1 %}}{}", deep("{{ (x ~ '')|length }}"));
    assert_eq!(render(&source).unwrap(), "4801");
    let body = deep("{{ (x ~ '')|length }}{{ x == [x] }}{{ f(x) }}");
    refused(&format!("{{% macro f(x) %}}{body}{{% endmacro %}}{{{{ f(1) }}}}"));
    refused("{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}");
    refused("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}");
}

#[test]
fn templates_end_and_stay_small() {
    for source in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{{ 'x' * 10**10 }}",
        "{{ ([1] * 10**10)|length }}",
        "{{ 'a\nb'|indent(10**12) }}",
        "{{ '%1000000000000d'|format(1) }}",
        "{{ '%.1000000000000f'|format(1.5) }}",
        "{{ '{:1000000000000}'.format(1) }}",
        "{{ ('{0:1000}' * 10**6).format(1) }}",
        "{{ ('{0}' * 10**5).format('x' * 10**5) }}",
        "{{ '{:>99999999999999999999999}'.format(1) }}",
        "{{ [1]|slice(10**12)|list }}",
        "{{ [1]|batch(10**12, 0)|list }}",
        "{{ ('a' * 100000)|replace('a', 'b' * 100000)|length }}",
        "{{ range(100000)|join('x' * 100000)|length }}",
        "{{ 1|tojson(indent=10**12) }}",
        // Little to see of it, but each makes a list of thousands of texts.
        "{% set x = 'a ' * 5000 %}{% for i in range(9999) %}{% set y = x.split() %}{% endfor %}",
        "{% set x = 'a ' * 5000 %}{% for i in range(9999) %}{% set y = x.rsplit('a') %}{% endfor %}",
        "{% set x = 'a\\n' * 5000 %}{% for i in range(9999) %}{% set y = x.splitlines() %}{% endfor %}",
        // And each of these a copy of a long one.
        "{% set x = 'a ' * 50000 %}{% for i in range(9999) %}{% set y = x.upper() %}{% endfor %}",
    ] {
        refused(source);
    }
    let message = refused("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}");
    assert!(message.contains("does more than 4000000 steps"), "{message}");
    let long = "{% for i in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
                xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}";
    assert!(refused(long).contains("the prompt is longer than 16777216 bytes"));
    assert!(refused("{{ 1 }}\n\n{% if %}").contains("line 3"));
    // A precision that the formatting library panics on.
    match render("{{ '{:.100000}'.format(1.5) }}") {
        Ok(text) => assert!(text.starts_with("1.5"), "{text}"),
        Err(error) => assert!(matches!(error, TextError::Render { .. }), "{error}"),
    }
}

#[test]
fn messages_nested_too_deeply_are_refused() {
    let template = ChatTemplate::new("here", "{{ messages }}", &SpecialTokens::default()).unwrap();
    let messages = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let request = ChatRequest {
        messages: &messages,
        ..ChatRequest::default()
    };
    let error = template.render(&request).unwrap_err();
    assert!(
        matches!(error, TextError::BadArgument { what: "messages", .. }),
        "{error}"
    );
}

#[test]
fn generation_tags_in_strings_and_raw_blocks_are_text() {
    assert_eq!(
        render("{% raw %}{% generation %}{% endraw %}").unwrap(),
        "{% generation %}"
    );
    assert_eq!(render("{{ '{% generation %}' }}").unwrap(), "{% generation %}");
    assert_eq!(render("{% generation %}a{% endgeneration %}").unwrap(), "a");
}

// Expected: json.dumps of Python 3.
#[test]
fn tojson_is_pythons() {
    for (value, expected) in [
        ("[1e308 * 10, -(1e308 * 10)]", "[Infinity, -Infinity]"),
        ("(1e308 * 10) - (1e308 * 10)", "NaN"),
        (
            "{7: 2, none: 3, true: 4, 1.5: 5}",
            "{\"7\": 2, \"null\": 3, \"true\": 4, \"1.5\": 5}",
        ),
        (
            "[1.0, 1e16, 0.00001, 99999999999999999999999999]",
            "[1.0, 1e+16, 1e-05, 99999999999999999999999999]",
        ),
        (
            "[[], {}, '\\u007f\u{e9}\"\\\\\\n']",
            "[[], {}, \"\u{7f}\u{e9}\\\"\\\\\\n\"]",
        ),
    ] {
        assert_eq!(render(&format!("{{{{ ({value})|tojson }}}}")).unwrap(), expected);
    }
    assert_eq!(
        render("{{ ['\u{7f}\u{1f642}']|tojson(ensure_ascii=true) }}").unwrap(),
        "[\"\\u007f\\ud83d\\ude42\"]"
    );
    assert_eq!(
        render("{{ {'b': [1, {}], 'a': 2}|tojson(indent=1, sort_keys=true) }}").unwrap(),
        "{\n \"a\": 2,\n \"b\": [\n  1,\n  {}\n ]\n}"
    );
    assert_eq!(
        render("{{ [1, {'a': 2}]|tojson(separators=[',', ':']) }}").unwrap(),
        "[1,{\"a\":2}]"
    );
    assert!(refused("{{ {[1]: 2}|tojson }}").contains("a dict's key of kind"));
    assert!(refused("{{ range|tojson }}").contains("cannot be written as JSON"));
}
