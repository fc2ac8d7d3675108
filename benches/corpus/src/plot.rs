//! Draws an SVG of the speed-up of every chart.

use std::fmt::Write as _;

use crate::report::{Comparison, Row};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 60.0;

/// A series: name, colour, value per chart, and median.
type Series<'s> = (&'s str, &'s str, fn(&Row) -> f64, f64);

/// Returns the plot: one point per chart and series on a logarithmic axis.
pub(crate) fn svg(comparison: &Comparison) -> String {
    let series: [Series<'_>; 2] = [
        (
            "render, chart compiled",
            "#1f6feb",
            Row::compiled,
            comparison.median_compiled(),
        ),
        (
            "load, compile and render",
            "#d9730d",
            Row::whole,
            comparison.median_whole(),
        ),
    ];
    let values = || {
        comparison
            .rows
            .iter()
            .flat_map(|row| [row.compiled(), row.whole()])
    };
    let highest = values().fold(10.0, f64::max).log10().ceil();
    let lowest = values().fold(1.0, f64::min).log10().floor();
    let y = |value: f64| {
        let part = (value.log10() - lowest) / (highest - lowest);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    axes(&mut svg, lowest, highest, y);
    let step = (WIDTH - LEFT - RIGHT) / float(comparison.rows.len().max(1));
    for (number, (name, colour, value, median)) in series.iter().enumerate() {
        for (index, row) in comparison.rows.iter().enumerate() {
            let (x, value) = (LEFT + (float(index) + 0.5) * step, value(row));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\">\
                 <title>{}: {value:.1}</title></circle>",
                y(value),
                row.chart
            );
        }
        let (at, legend) = (y(*median), 20.0 + 20.0 * float(number));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\" \
             stroke-dasharray=\"6 4\"/>\n\
             <circle cx=\"{:.1}\" cy=\"{legend}\" r=\"5\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{name} (median {median:.1}, dashed)</text>",
            WIDTH - RIGHT,
            LEFT + 10.0,
            LEFT + 22.0,
            legend + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String, lowest: f64, highest: f64, y: impl Fn(f64) -> f64) {
    let mut exponent = lowest;
    while exponent <= highest {
        for digit in 1..10 {
            let value = f64::from(digit) * 10_f64.powf(exponent);
            if value.log10() > highest + 1e-9 {
                break;
            }
            let at = y(value);
            let colour = if digit == 1 { "#b0b0b0" } else { "#ececec" };
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\"/>",
                WIDTH - RIGHT
            );
            if digit == 1 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                    LEFT - 8.0,
                    at + 4.0
                );
            }
        }
        exponent += 1.0;
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">charts, by the factor with the chart compiled</text>\n\
         <text transform=\"translate(20 {:.1}) rotate(-90)\" text-anchor=\"middle\">\
         Helm's time / time here (times, logarithmic)</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 20.0,
        f64::midpoint(TOP, HEIGHT - BOTTOM)
    );
}

#[allow(clippy::cast_precision_loss, reason = "a corpus has few charts")]
fn float(count: usize) -> f64 {
    count as f64
}
