//! When requests are sent: at a rate, more or less regularly, with a rate that may rise.

use std::time::Duration;

use rand::Rng;
use rand_distr::{Distribution, Gamma};
use tegula_engine::Error;

/// Longest time over which requests are sent: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How the rate changes from the first request to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Ramp {
    /// By the same number with each request
    Linear,
    /// By the same factor with each request
    Exponential,
}

/// Requests per second over the course of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rate {
    /// All at once.
    Infinite,
    Constant(f64),
    Rising {
        how: Ramp,
        start: f64,
        end: f64,
    },
}

impl Rate {
    /// The rate at `progress` (0 at the first request, 1 at the last).
    fn at(self, progress: f64) -> f64 {
        match self {
            Rate::Infinite => f64::INFINITY,
            Rate::Constant(rate) => rate,
            Rate::Rising { how: Ramp::Linear, start, end } => start + (end - start) * progress,
            Rate::Rising { how: Ramp::Exponential, start, end } => start * (end / start).powf(progress),
        }
    }
}

/// When each of `n` requests is sent, from the start of the run.
///
/// The waits between them are gamma distributed around 1/rate with the shape `burstiness` (1: a Poisson process; smaller:
/// in bursts; larger: more regular). With a constant rate they are scaled so that the last request is sent after n/rate
/// seconds exactly: runs of other seeds then take equally long.
///
/// # Errors
/// If the rate is so low that they would be sent over more than [`LONGEST`].
pub(super) fn schedule(n: usize, rate: Rate, burstiness: f64, rng: &mut impl Rng) -> Result<Vec<Duration>, Error> {
    let last = n.saturating_sub(1).max(1) as f64;
    let mut at = 0.0;
    let mut times: Vec<f64> = (0..n)
        .map(|i| {
            let rate = rate.at(i as f64 / last);
            // An infinite rate has no wait. Of what the options allow, Gamma refuses waits that are no numbers any more.
            if rate.is_finite() {
                at +=
                    Gamma::new(burstiness, 1.0 / (rate * burstiness)).map_or(f64::INFINITY, |gamma| gamma.sample(rng));
            }
            at
        })
        .collect();
    if let (Rate::Constant(rate), true) = (rate, at > 0.0) {
        let scale = n as f64 / rate / at;
        times.iter_mut().for_each(|t| *t *= scale);
    }
    let time = |seconds| Duration::try_from_secs_f64(seconds).ok().filter(|at| *at <= LONGEST);
    let times: Option<Vec<Duration>> = times.into_iter().map(time).collect();
    times.ok_or_else(|| {
        Error::Usage(
            "the rate is so low that the requests would be sent over more than a year: raise --request-rate, or \
             --ramp-up-start-rps and --ramp-up-end-rps, or lower --num-prompts"
                .into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn waits(n: usize, rate: Rate, burstiness: f64) -> Vec<f64> {
        let times = schedule(n, rate, burstiness, &mut Pcg64::seed_from_u64(7)).unwrap();
        let mut before = 0.0;
        times.iter().map(|t| t.as_secs_f64() - std::mem::replace(&mut before, t.as_secs_f64())).collect()
    }

    #[test]
    fn an_infinite_rate_sends_all_at_once() {
        assert_eq!(schedule(3, Rate::Infinite, 1.0, &mut Pcg64::seed_from_u64(1)).unwrap(), [Duration::ZERO; 3]);
    }

    #[test]
    fn a_rate_too_low_for_any_clock_is_refused() {
        let rising = |how, start| Rate::Rising { how, start, end: 1.0 };
        for low in [1e-9, 1e-300, 1e-320] {
            for rate in [Rate::Constant(low), rising(Ramp::Linear, low), rising(Ramp::Exponential, low)] {
                let error = schedule(8, rate, 1.0, &mut Pcg64::seed_from_u64(1)).unwrap_err().to_string();
                assert!(error.contains("--request-rate"), "{rate:?}: {error}");
            }
        }
        let slow = schedule(8, Rate::Constant(1e-6), 1.0, &mut Pcg64::seed_from_u64(1)).unwrap();
        assert!((slow[7].as_secs_f64() - 8e6).abs() < 1e-3, "{slow:?}");
    }

    #[test]
    fn the_mean_wait_is_that_of_the_rate_and_its_spread_that_of_the_burstiness() {
        for burstiness in [0.25, 1.0, 4.0] {
            let waits = waits(20_000, Rate::Constant(50.0), burstiness);
            let mean = waits.iter().sum::<f64>() / 20_000.0;
            assert!((mean - 0.02).abs() < 1e-6, "{mean}");
            let variance = waits.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / 20_000.0;
            // Of a gamma distribution: mean² / shape. Of 20,000 draws the error is a few percent.
            let expected = mean * mean / burstiness;
            assert!((variance / expected - 1.0).abs() < 0.1, "{burstiness}: {variance} {expected}");
        }
    }

    #[test]
    fn a_rising_rate_makes_later_waits_shorter() {
        for how in [Ramp::Linear, Ramp::Exponential] {
            let waits = waits(4_000, Rate::Rising { how, start: 1.0, end: 16.0 }, 1.0);
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            let (first, last) = (mean(&waits[..200]), mean(&waits[3_800..]));
            assert!((0.6..1.3).contains(&first) && (1.0 / 20.0..1.0 / 12.0).contains(&last), "{how:?}: {first} {last}");
        }
        assert_eq!(Rate::Rising { how: Ramp::Exponential, start: 1.0, end: 16.0 }.at(0.5), 4.0);
        assert_eq!(Rate::Rising { how: Ramp::Linear, start: 1.0, end: 16.0 }.at(0.5), 8.5);
    }
}
