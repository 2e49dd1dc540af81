//! Rotary position embedding: frequencies, and the tables of cosines and sines.

use std::f64::consts::PI;

/// Rotary embedding of one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Llama 3's stretch of the low frequencies.
    pub llama3: Option<Llama3>,
}

/// Parameters of `rope_type: llama3`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3 {
    /// How much longer the wavelengths of low frequencies become.
    pub factor: f64,
    /// Below this many waves in the original context, a frequency is low.
    pub low_freq_factor: f64,
    /// Above this many waves in the original context, a frequency is kept.
    pub high_freq_factor: f64,
    /// Context length before the stretch, in tokens.
    pub original_context: f64,
}

impl Rope {
    /// Angle per position of each of the `head_dim / 2` pairs, in radians.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f64> {
        (0..head_dim / 2)
            .map(|i| self.theta.powf(-((2 * i) as f64) / head_dim as f64))
            .map(|frequency| self.llama3.map_or(frequency, |llama3| llama3.stretch(frequency)))
            .collect()
    }

    /// Cosines and sines of positions `0..length`, row-major `[length][head_dim / 2]`.
    pub fn tables(&self, head_dim: usize, length: usize) -> (Vec<f64>, Vec<f64>) {
        let frequencies = self.frequencies(head_dim);
        (0..length)
            .flat_map(|position| frequencies.iter().map(move |f| position as f64 * f))
            .map(|angle| (angle.cos(), angle.sin()))
            .unzip()
    }
}

impl Llama3 {
    fn stretch(&self, frequency: f64) -> f64 {
        let waves = self.original_context * frequency / (2.0 * PI);
        let smooth =
            (waves - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
        let smooth = smooth.clamp(0.0, 1.0);
        (1.0 - smooth) * frequency / self.factor + smooth * frequency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_keeps_high_frequencies_and_divides_low_ones() {
        let plain = Rope { theta: 500000.0, llama3: None };
        let llama3 = Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 64.0,
        };
        let stretched = Rope { llama3: Some(llama3), ..plain };
        let (before, after) = (plain.frequencies(16), stretched.frequencies(16));
        assert_eq!(after[0], before[0]);
        for i in 2..8 {
            assert_eq!(after[i], before[i] / 8.0, "{i}");
        }
        let (cos, sin) = plain.tables(16, 3);
        assert_eq!((cos.len(), cos[0], sin[0]), (24, 1.0, 0.0));
        assert_eq!(cos[16], 2.0f64.cos());
    }
}
