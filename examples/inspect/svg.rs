//! A package as a picture (SVG 1.1): a box for each component, an arrow for each value that goes from
//! one to another, the host's inputs on the left. Drawn from what `Pipeline::describe` says.

use std::fmt::{self, Write};

use serde_json::Value;

const BOX: f64 = 250.0;
const COLUMN: f64 = BOX + 150.0;
const GAP: f64 = 40.0;
const LINE: f64 = 17.0;
const PADDING: f64 = 10.0;
const MARGIN: f64 = 24.0;
const TOP: f64 = 64.0;
/// Width of a character of the text, which is of 12 pixels, about.
const CHARACTER: f64 = 6.6;

/// What a component is drawn with.
struct Component<'a> {
    name: &'a str,
    lines: Vec<String>,
    backend: &'a str,
    reason: &'a str,
    column: usize,
    x: f64,
    y: f64,
}

impl Component<'_> {
    fn height(&self) -> f64 {
        2.0 * PADDING + LINE * (self.lines.len() + 1) as f64
    }
}

/// Values that go from one component to another, by the names of their ports.
struct Edge<'a> {
    from: usize,
    to: usize,
    ports: Vec<(&'a str, &'a str)>,
}

/// Draws what `describe` says, with the bytes of each component's files.
pub fn draw(description: &Value, weight_bytes: &[(String, u64)]) -> String {
    let mut svg = String::new();
    // Writing into a string cannot fail.
    let _ = write(&mut svg, description, weight_bytes);
    svg
}

fn write(svg: &mut String, description: &Value, weight_bytes: &[(String, u64)]) -> fmt::Result {
    let described = list(&description["components"]);
    let edges = edges(description);
    let columns = columns(described.len(), &edges);
    let mut components: Vec<Component<'_>> = described
        .iter()
        .zip(columns)
        .map(|(component, column)| {
            let bytes = weight_bytes
                .iter()
                .find(|(name, _)| name == text(&component["name"]));
            component_of(component, column, bytes.map(|(_, bytes)| *bytes))
        })
        .collect();
    let (width, height) = place(&mut components);
    let height = height + 40.0;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">"
    )?;
    writeln!(
        svg,
        "<defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#444\"/></marker></defs>"
    )?;
    writeln!(svg, "<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>")?;
    title(svg, description)?;
    for (index, edge) in edges.iter().enumerate() {
        arrow(svg, edge, ends(&edges, index, &components), &components)?;
    }
    for component in &components {
        draw_component(svg, component)?;
    }
    legend(svg, height)?;
    writeln!(svg, "</svg>")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Edges between different components, those between the same two together.
fn edges(description: &Value) -> Vec<Edge<'_>> {
    let components = list(&description["components"]);
    let mut found: Vec<Edge<'_>> = Vec::new();
    for (to, component) in components.iter().enumerate() {
        for input in list(&component["inputs"]) {
            if let Some((from, what)) = made_by_a_loop(description, input)
                && let Some(from) = components.iter().position(|other| other["name"] == *from)
                && from != to
            {
                let ports = vec![(what, text(&input["name"]))];
                found.push(Edge { from, to, ports });
            }
            let source = input["source"]["edge"].as_str();
            let merged = list(&input["merges"])
                .iter()
                .map(|merge| text(&merge["features"]));
            for address in source.into_iter().chain(merged) {
                let from = components.iter().position(|other| {
                    let rest = address.strip_prefix(text(&other["name"]));
                    rest.is_some_and(|rest| rest.starts_with('.'))
                });
                let Some(from) = from.filter(|&from| from != to) else {
                    continue;
                };
                let port = &address[text(&components[from]["name"]).len() + 1..];
                let ports = (port, text(&input["name"]));
                match found.iter_mut().find(|edge| (edge.from, edge.to) == (from, to)) {
                    Some(edge) => edge.ports.push(ports),
                    None => found.push(Edge {
                        from,
                        to,
                        ports: vec![ports],
                    }),
                }
            }
        }
    }
    found
}

/// The component whose loop makes an input's value, and what that is; none for other inputs.
fn made_by_a_loop<'a>(description: &'a Value, input: &'a Value) -> Option<(&'a Value, &'a str)> {
    let source = &input["source"];
    match source.as_str() {
        Some(what @ ("output_ids" | "output_codes" | "frames")) => Some((&description["decoder"], what)),
        Some(_) => None,
        None => source
            .get("loop_result")
            .map(|denoiser| (denoiser, "the loop's result")),
    }
}

/// How far each component is from the left: behind all that it gets values of.
fn columns(count: usize, edges: &[Edge<'_>]) -> Vec<usize> {
    let mut columns = vec![0; count];
    // A circle would never settle; there are as many rounds as a row of all components needs.
    for _ in 0..count {
        for edge in edges {
            columns[edge.to] = columns[edge.to].max(columns[edge.from] + 1).min(count - 1);
        }
    }
    columns
}

fn component_of(component: &Value, column: usize, bytes: Option<u64>) -> Component<'_> {
    let kind = text(&component["type"]);
    let phase = text(&component["phase"]).replace('_', " ");
    let when = match text(&component["when_present"]) {
        "" => String::new(),
        modality => format!(", with {modality}"),
    };
    let mut lines = Vec::new();
    if !kind.is_empty() {
        lines.push(kind.to_owned());
    }
    lines.push(format!("{phase}{when}"));
    lines.push(format!("on {}", text(&component["backend"])));
    let file = text(&component["file"]);
    lines.push(match bytes {
        Some(bytes) => format!("{file}, {}", size(bytes)),
        None => file.to_owned(),
    });
    lines.extend(sources(component));
    lines.extend(results(component));
    Component {
        name: text(&component["name"]),
        lines,
        backend: text(&component["backend"]),
        reason: text(&component["reason"]),
        column,
        x: 0.0,
        y: 0.0,
    }
}

/// A line for each kind of source that is no component.
fn sources(component: &Value) -> Vec<String> {
    let mut kinds: Vec<(&str, Vec<&str>)> = Vec::new();
    for input in list(&component["inputs"]) {
        let source = &input["source"];
        let kind = match source {
            Value::String(source) => source.as_str(),
            source if !source["cache"].is_null() => "cache",
            source if !source["state"].is_null() => "state",
            source if !source["held"].is_null() => "held",
            _ => continue,
        };
        let name = text(&input["name"]);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(name),
            None => kinds.push((kind, vec![name])),
        }
    }
    let lines = kinds.iter().map(|(kind, names)| match (*kind, names.as_slice()) {
        ("cache", names) => format!("keeps {} caches", names.len()),
        ("state", names) => format!("keeps {} states", names.len()),
        (kind, [name]) => format!("{name} ← {kind}"),
        (kind, names) => format!("{} ← {kind}", names.join(", ")),
    });
    lines.collect()
}

/// The outputs that are no cache.
fn results(component: &Value) -> Option<String> {
    let plain = list(&component["outputs"]).iter();
    let names: Vec<&str> = plain
        .filter(|output| output["role"].is_null())
        .map(|output| text(&output["name"]))
        .collect();
    (!names.is_empty()).then(|| format!("→ {}", names.join(", ")))
}

fn size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if size < 1024.0 {
            return match unit {
                "B" => format!("{bytes} B"),
                unit => format!("{size:.1} {unit}"),
            };
        }
        size /= 1024.0;
    }
    format!("{size:.2} GiB")
}

/// Puts the boxes into their columns; gives the picture's width and height.
fn place(components: &mut [Component<'_>]) -> (f64, f64) {
    let columns = components
        .iter()
        .map(|component| component.column + 1)
        .max()
        .unwrap_or(0);
    let mut bottoms = vec![TOP; columns];
    for component in components.iter_mut() {
        component.x = MARGIN + COLUMN * component.column as f64;
        component.y = bottoms[component.column];
        bottoms[component.column] += component.height() + GAP;
    }
    let width = 2.0 * MARGIN + COLUMN * columns.max(1) as f64 - (COLUMN - BOX);
    (
        width.max(640.0),
        bottoms.iter().fold(TOP, |most, &bottom| most.max(bottom)),
    )
}

fn title(svg: &mut String, description: &Value) -> fmt::Result {
    let kv = description["kv_bytes_per_token"].as_u64();
    let kv = kv.map_or(String::new(), |bytes| {
        format!(", {} of KV cache a token", size(bytes))
    });
    let loops: Vec<String> = list(&description["iterations"])
        .iter()
        .map(|of| format!(", {} steps of {}", of["num_steps"], text(&of["denoiser"])))
        .collect();
    let line = format!(
        "{}: {}{}{kv}",
        text(&description["format"]),
        text(&description["strategy"]),
        loops.concat()
    );
    writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"36\" font-size=\"16\" font-weight=\"bold\">{}</text>",
        Xml(&line)
    )
}

/// How high an edge leaves its box and meets the other: those of one side are spread over it.
fn ends(edges: &[Edge<'_>], index: usize, components: &[Component<'_>]) -> (f64, f64) {
    let edge = &edges[index];
    let height = |at: usize, same: &dyn Fn(&Edge<'_>) -> bool| {
        let before = edges[..index].iter().filter(|other| same(other)).count() + 1;
        let all = edges.iter().filter(|other| same(other)).count() + 1;
        let component = &components[at];
        component.y + component.height() * before as f64 / all as f64
    };
    (
        height(edge.from, &|other| other.from == edge.from),
        height(edge.to, &|other| other.to == edge.to),
    )
}

fn arrow(
    svg: &mut String,
    edge: &Edge<'_>,
    (y0, y1): (f64, f64),
    components: &[Component<'_>],
) -> fmt::Result {
    let (from, to) = (&components[edge.from], &components[edge.to]);
    let (x0, x1) = (from.x + BOX, to.x);
    // A way back, of a loop over several components, goes below both.
    let path = if x1 > x0 {
        let middle = (x0 + x1) / 2.0;
        format!("M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}")
    } else {
        let below = (from.y + from.height()).max(to.y + to.height()) + GAP / 2.0;
        format!("M{x0} {y0}C{} {below} {} {below} {x1} {y1}", x0 + 60.0, x1 - 60.0)
    };
    let all: Vec<String> = edge
        .ports
        .iter()
        .map(|(from, to)| {
            if from == to {
                (*from).to_owned()
            } else {
                format!("{from} → {to}")
            }
        })
        .collect();
    writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"#444\" stroke-width=\"1.4\" marker-end=\"url(#end)\"><title>{}</title></path>",
        Xml(&all.join(", "))
    )?;
    let more = edge.ports.len().saturating_sub(2);
    let mut shown: Vec<&str> = edge.ports.iter().take(2).map(|(from, _)| *from).collect();
    let rest = format!("and {more} more");
    if more > 0 {
        shown.push(&rest);
    }
    // Over the beginning of the arrow.
    for (line, label) in shown.iter().enumerate() {
        let y = y0 - 6.0 - 13.0 * (shown.len() - 1 - line) as f64;
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{y}\" font-size=\"11\" fill=\"#444\">{}</text>",
            x0 + 6.0,
            Xml(&cut(label, 140.0))
        )?;
    }
    Ok(())
}

fn draw_component(svg: &mut String, component: &Component<'_>) -> fmt::Result {
    let (fill, stroke) = match component.backend {
        "native" => ("#e3f3e6", "#2d7a3e"),
        _ => ("#e4ecfa", "#2f5ca8"),
    };
    let Component { x, y, .. } = component;
    writeln!(
        svg,
        "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{BOX}\" height=\"{}\" rx=\"6\" fill=\"{fill}\" stroke=\"{stroke}\"/>",
        Xml(&format!("{}: {}", component.name, component.reason)),
        component.height()
    )?;
    let left = x + PADDING;
    let mut baseline = y + PADDING + 12.0;
    writeln!(
        svg,
        "<text x=\"{left}\" y=\"{baseline}\" font-size=\"13\" font-weight=\"bold\">{}</text>",
        Xml(&cut(component.name, BOX - 2.0 * PADDING))
    )?;
    for line in &component.lines {
        baseline += LINE;
        writeln!(
            svg,
            "<text x=\"{left}\" y=\"{baseline}\">{}</text>",
            Xml(&cut(line, BOX - 2.0 * PADDING))
        )?;
    }
    writeln!(svg, "</g>")
}

fn legend(svg: &mut String, height: f64) -> fmt::Result {
    let y = height - 26.0;
    for (place, (name, fill, stroke)) in [
        ("native", "#e3f3e6", "#2d7a3e"),
        ("ONNX Runtime", "#e4ecfa", "#2f5ca8"),
    ]
    .into_iter()
    .enumerate()
    {
        let x = MARGIN + 130.0 * place as f64;
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{fill}\" stroke=\"{stroke}\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            x + 20.0,
            y + 12.0
        )?;
    }
    Ok(())
}

/// As much of the text as there is room for.
fn cut(text: &str, width: f64) -> String {
    let room = (width / CHARACTER) as usize;
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Text as XML has it. Characters that XML 1.0 does not have are left out.
struct Xml<'a>(&'a str);

impl fmt::Display for Xml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\t' | '\n' | '\r' => f.write_char(' ')?,
                '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
