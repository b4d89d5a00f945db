//! The statistics that the tables need.

/// The median; 0 if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

/// The smallest and the largest value.
pub fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

/// The geometric mean; 0 if there are no values.
pub fn geometric_mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The slope of the line nearest to these points, by least squares; 0 if there is none.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let (xy, xx) = points.iter().fold((0.0, 0.0), |(xy, xx), p| {
        (xy + (p.0 - x) * (p.1 - y), xx + (p.0 - x) * (p.0 - x))
    });
    if xx > 0.0 { xy / xx } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!((geometric_mean(&[1.0, 4.0]) - 2.0).abs() < 1e-12);
        assert_eq!(range(&[2.0, 5.0, 3.0]), (2.0, 5.0));
    }

    #[test]
    fn slopes() {
        assert_eq!(slope(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]), 2.0);
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 0.0), (2.0, 1.0)]), 0.0);
        assert_eq!((slope(&[(1.0, 5.0)]), slope(&[])), (0.0, 0.0));
    }
}
