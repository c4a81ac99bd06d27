//! How high a rate stands in a chart.

/// Where the greatest rate is so many times the middle one, the scale is logarithmic: else there would be one bar.
const LOGARITHMIC_FROM: f64 = 30.0;

/// From nothing, or from its lowest mark, to the greatest rate.
#[derive(Debug)]
pub(super) struct Scale {
    least: f64,
    greatest: f64,
    logarithmic: bool,
    /// Marks of a logarithmic scale are this apart.
    step: f64,
}

impl Scale {
    /// A scale for these; a logarithmic one has marks at the powers of `step`.
    pub(super) fn of(rates: &[f64], step: f64) -> Self {
        let mut sorted: Vec<f64> = rates.iter().copied().filter(|rate| *rate > 0.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let greatest = sorted.last().copied().unwrap_or(1.0).max(1.0);
        let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(greatest);
        let logarithmic = greatest > LOGARITHMIC_FROM * middle;
        // The lowest mark stands below all but the few least.
        let low = sorted.get(sorted.len() / 20).copied().unwrap_or(1.0).max(1.0);
        let least = if logarithmic { step.powf(low.log(step).floor()) } else { 0.0 };
        Self { least, greatest, logarithmic, step }
    }

    /// What is to be said of it; empty for an ordinary one.
    pub(super) fn note(&self) -> &'static str {
        if self.logarithmic { ", logarithmic" } else { "" }
    }

    /// The greatest rate.
    pub(super) fn greatest(&self) -> f64 {
        self.greatest
    }

    /// From 0 to 1. A little is not nothing.
    pub(super) fn part(&self, rate: f64) -> f64 {
        match self.logarithmic {
            _ if rate <= 0.0 => 0.0,
            false => (rate / self.greatest).max(0.01),
            true => ((rate / self.least).ln() / (self.greatest / self.least).ln()).clamp(0.01, 1.0),
        }
    }

    /// Places from 0 to 1, and the rates there.
    pub(super) fn marks(&self) -> Vec<(f64, f64)> {
        let mut marks = vec![(0.0, self.least), (1.0, self.greatest)];
        if self.logarithmic {
            let mut mark = self.least * self.step;
            // None so near to the top that their labels would overlap.
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
