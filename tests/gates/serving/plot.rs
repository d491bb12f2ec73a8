//! docs/perf/serving.svg: bars of both servers, tokens per second above, time to the first token below.

use std::fmt::Write;

use super::{Pair, Run};

const OURS: &str = "#c2552d";
const THEIRS: &str = "#8a8178";
const LEFT: f64 = 70.0;
const GROUP: f64 = 68.0;
const HEIGHT: f64 = 190.0;

/// A panel of bars.
struct Panel {
    title: &'static str,
    top: f64,
    of: fn(&Run) -> f64,
    /// Each step ten times the last.
    logarithmic: bool,
}

pub fn svg(pairs: &[Pair]) -> String {
    let width = LEFT + GROUP * pairs.len() as f64 + 20.0;
    let panels = [
        Panel { title: "tokens per second, prompts and answers", top: 50.0, of: |r| r.total, logarithmic: false },
        Panel { title: "milliseconds to the first token, logarithmic", top: 310.0, of: |r| r.ttft, logarithmic: true },
    ];
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"560\" viewBox=\"0 0 {width} 560\" \
         font-family=\"sans-serif\" font-size=\"11\" fill=\"#25211d\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fffdfa\"/>\n"
    );
    for (x, colour, name) in [(width - 190.0, OURS, "Tegula"), (width - 110.0, THEIRS, "llama.cpp")] {
        // Writing to a text cannot fail, here and below.
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"14\" width=\"11\" height=\"11\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"24\">{name}</text>", x + 16.0);
    }
    panels.iter().for_each(|panel| panel.draw(pairs, width, &mut svg));
    svg + "</svg>\n"
}

impl Panel {
    fn draw(&self, pairs: &[Pair], width: f64, svg: &mut String) {
        let bottom = self.top + HEIGHT;
        let values = |pair: &Pair| [(pair.ours(self.of), OURS), (pair.theirs(self.of), THEIRS)];
        let largest = pairs.iter().flat_map(values).map(|(value, _)| value).fold(1.0, f64::max);
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\" font-size=\"13\" font-weight=\"bold\">{}</text>",
            self.top - 14.0,
            self.title
        );
        let (marks, most) = self.marks(largest);
        let height = |value: f64| {
            let share = if self.logarithmic { value.max(1.0).ln() / most.ln() } else { value / most };
            HEIGHT * share.clamp(0.0, 1.0)
        };
        for mark in marks {
            let y = bottom - height(mark);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#e5dfd6\"/>", width - 20.0);
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>", LEFT - 6.0, y + 4.0);
        }
        for (i, pair) in pairs.iter().enumerate() {
            let x = LEFT + GROUP * i as f64 + 10.0;
            for (j, (value, colour)) in values(pair).into_iter().enumerate() {
                let (x, h) = (x + 24.0 * j as f64, height(value));
                let y = bottom - h;
                let _ =
                    writeln!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"22\" height=\"{h:.1}\" fill=\"{colour}\"/>");
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"8.5\">{value:.0}</text>",
                    x + 11.0,
                    y - 3.0
                );
            }
            let load = pair.load;
            let lines =
                [format!("{} × {}", load.clients, load.prompt), if load.shared { "shared" } else { "" }.to_owned()];
            for (j, line) in lines.iter().enumerate() {
                let y = bottom + 15.0 + 13.0 * j as f64;
                let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{line}</text>", x + 23.0);
            }
        }
    }

    /// Round numbers beside the axis, and the value at its top.
    fn marks(&self, largest: f64) -> (Vec<f64>, f64) {
        if self.logarithmic {
            let decades = largest.log10().ceil().max(1.0);
            return ((0..=decades as i32).map(|e| 10f64.powi(e)).collect(), 10f64.powf(decades));
        }
        let power = 10f64.powf(largest.log10().floor());
        let step = [0.2, 0.5, 1.0, 2.0].map(|m| m * power).into_iter().find(|s| largest / s <= 6.0).unwrap_or(power);
        let count = (largest / step).ceil();
        ((0..=count as i32).map(|i| f64::from(i) * step).collect(), count * step)
    }
}
