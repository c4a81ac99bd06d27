//! The vertical scale of a chart.

/// If the maximum is at least this many times the median, the scale is logarithmic. A linear scale would show
/// little more than one bar.
const LOGARITHMIC_FROM: f64 = 30.0;

/// A scale from 0, or from the lowest mark of a logarithmic scale, to the maximum rate.
#[derive(Debug)]
pub struct Scale {
    least: f64,
    greatest: f64,
    logarithmic: bool,
    /// The factor between two marks of a logarithmic scale.
    step: f64,
}

impl Scale {
    /// The scale for these rates. A logarithmic scale has marks at the powers of `step`.
    pub fn of(rates: &[f64], step: f64) -> Self {
        let mut sorted: Vec<f64> = rates.iter().copied().filter(|rate| *rate > 0.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let greatest = sorted.last().copied().unwrap_or(1.0).max(1.0);
        let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(greatest);
        let logarithmic = greatest > LOGARITHMIC_FROM * middle;
        // Choose the lowest mark so that only the lowest 5 % of the rates are below it.
        let low = sorted.get(sorted.len() / 20).copied().unwrap_or(1.0).max(1.0);
        let least = if logarithmic { step.powf(low.log(step).floor()) } else { 0.0 };
        Self { least, greatest, logarithmic, step }
    }

    /// The note for the label of the chart; empty for a linear scale.
    pub fn note(&self) -> &'static str {
        if self.logarithmic { ", logarithmic" } else { "" }
    }

    /// The maximum rate.
    pub fn greatest(&self) -> f64 {
        self.greatest
    }

    /// The height at which a rate is drawn, from 0 to 1. A rate above 0 is always visible.
    pub fn part(&self, rate: f64) -> f64 {
        match self.logarithmic {
            _ if rate <= 0.0 => 0.0,
            false => (rate / self.greatest).max(0.01),
            true => ((rate / self.least).ln() / (self.greatest / self.least).ln()).clamp(0.01, 1.0),
        }
    }

    /// The marks: the height of each mark, from 0 to 1, and the rate there.
    pub fn marks(&self) -> Vec<(f64, f64)> {
        let mut marks = vec![(0.0, self.least), (1.0, self.greatest)];
        if self.logarithmic {
            let mut mark = self.least * self.step;
            // Leave out a mark so near to the top that its label would overlap the top label.
            while self.part(mark) < 0.9 {
                marks.push((self.part(mark), mark));
                mark *= self.step;
            }
        } else {
            marks.push((0.5, self.greatest / 2.0));
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::Scale;

    #[test]
    fn a_spike_makes_the_scale_logarithmic() {
        let even = Scale::of(&[0.0, 500.0, 1000.0], 1024.0);
        assert_eq!((even.note(), even.part(500.0), even.part(0.0)), ("", 0.5, 0.0));
        assert_eq!(even.marks(), [(0.0, 0.0), (1.0, 1000.0), (0.5, 500.0)]);
        let spike = Scale::of(&[2000.0, 2000.0, 1024.0 * 1024.0], 1024.0);
        assert_eq!(spike.note(), ", logarithmic");
        assert_eq!(spike.marks()[..2], [(0.0, 1024.0), (1.0, 1024.0 * 1024.0)]);
        assert!(spike.part(2000.0) > 0.05 && spike.part(1.0) == 0.01);
        assert_eq!(Scale::of(&[], 10.0).part(0.0), 0.0);
    }
}
