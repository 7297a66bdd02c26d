//! All series of one instant, or of one span of time, in one row of the file.
//!
//! For each series in order of its number: a variable-length integer that holds the distance from the number before,
//! whether least and greatest differ, and whether it stands for more than one value; then how many more; then the mean
//! alone, or least, mean and greatest. A whole number takes as few bytes as it needs, any other eight and a mark. Bytes
//! of memory, counts and zeros are whole, and most spans are level, so a row is about a third of what columns would be.

use super::rollup::Span;

/// Whole numbers up to here are exact in an `f64` and fit the short form.
const WHOLE: f64 = 4_503_599_627_370_496.0;
/// Starts a number that is not whole; the short form of whole numbers is even.
const NOT_WHOLE: u8 = 1;

/// A row holds something that was never packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a row of numbers cannot be read")]
pub(super) struct Damaged;

/// Packs spans, which must be in order of their series' numbers.
pub(super) fn pack(spans: &[(i64, Span)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(spans.len() * 12);
    let mut before = 0;
    for (series, span) in spans {
        let distance = u64::try_from(series.saturating_sub(before)).unwrap_or(0);
        before = *series;
        let differs = span.min.to_bits() != span.max.to_bits();
        let many = span.count > 1;
        push_integer(&mut bytes, distance << 2 | u64::from(many) << 1 | u64::from(differs));
        if many {
            push_integer(&mut bytes, span.count - 2);
        }
        if differs {
            push_number(&mut bytes, span.min);
        }
        push_number(&mut bytes, span.avg);
        if differs {
            push_number(&mut bytes, span.max);
        }
    }
    bytes
}

/// Hands out what was packed.
///
/// # Errors
/// [`Damaged`] when it was not packed by [`pack`]; what came before has been handed out.
pub(super) fn unpack(mut bytes: &[u8], mut take: impl FnMut(i64, Span)) -> Result<(), Damaged> {
    let mut series: i64 = 0;
    while !bytes.is_empty() {
        let head = take_integer(&mut bytes)?;
        series = i64::try_from(head >> 2).ok().and_then(|distance| series.checked_add(distance)).ok_or(Damaged)?;
        let count = match head & 2 {
            0 => 1,
            _ => take_integer(&mut bytes)?.checked_add(2).ok_or(Damaged)?,
        };
        let first = take_number(&mut bytes)?;
        let span = match head & 1 {
            0 => Span { count, min: first, avg: first, max: first },
            _ => Span { count, min: first, avg: take_number(&mut bytes)?, max: take_number(&mut bytes)? },
        };
        take(series, span);
    }
    Ok(())
}

/// LEB128: seven bits a byte, the lowest first, the top bit says that more follow.
fn push_integer(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    bytes.push(low_byte(value));
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

fn take_integer(bytes: &mut &[u8]) -> Result<u64, Damaged> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Damaged)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Damaged)
}

#[expect(clippy::cast_possible_truncation, reason = "the value is whole and below 2^52")]
fn push_number(bytes: &mut Vec<u8>, value: f64) {
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if value.fract() == 0.0 && value.abs() < WHOLE && !negative_zero {
        let whole = value as i64;
        // The sign goes to the lowest bit, so that small numbers stay short on both sides of zero.
        let folded = (whole.unsigned_abs() << 1) | u64::from(whole < 0);
        push_integer(bytes, folded << 1);
    } else {
        bytes.push(NOT_WHOLE);
        bytes.extend_from_slice(&value.to_le_bytes());
    }
}

#[expect(clippy::cast_precision_loss, reason = "what is packed short is below 2^52")]
fn take_number(bytes: &mut &[u8]) -> Result<f64, Damaged> {
    if bytes.first() == Some(&NOT_WHOLE) {
        let (eight, rest) = bytes[1..].split_first_chunk::<8>().ok_or(Damaged)?;
        *bytes = rest;
        return Ok(f64::from_le_bytes(*eight));
    }
    let coded = take_integer(bytes)?;
    if coded & 1 == 1 {
        return Err(Damaged);
    }
    let amount = (coded >> 2) as f64;
    Ok(if coded & 2 == 0 { amount } else { -amount })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(bytes: &[u8]) -> Result<Vec<(i64, Span)>, Damaged> {
        let mut spans = Vec::new();
        unpack(bytes, |series, span| spans.push((series, span)))?;
        Ok(spans)
    }

    #[test]
    fn what_is_packed_comes_back_to_the_bit() {
        let numbers =
            [0.0, -0.0, 1.0, -1.0, 63.5, 68_719_476_736.0, -4.503_599_627_370_495e15, 1e300, f64::MIN_POSITIVE];
        let mut spans: Vec<(i64, Span)> = Vec::new();
        for (index, number) in (1_i64..).zip(numbers) {
            spans.push((index * 97, Span::of(number)));
            spans.push((index * 97 + 1, Span { count: 60, min: number - 1.5, avg: number, max: number + 2.0 }));
        }
        let back = unpacked(&pack(&spans)).unwrap();
        assert_eq!(back, spans);
        for ((_, before), (_, after)) in spans.iter().zip(&back) {
            assert_eq!(before.avg.to_bits(), after.avg.to_bits());
        }
    }

    #[test]
    fn a_second_of_twenty_numbers_is_short() {
        let spans: Vec<(i64, Span)> = (1..=20).map(|series| (series, Span::of(43_210_987_520.0))).collect();
        assert!(pack(&spans).len() <= 20 * 7, "{}", pack(&spans).len());
    }

    #[test]
    fn a_row_that_was_cut_or_scribbled_on_is_refused_and_never_panics() {
        let spans = [(3, Span { count: 10, min: 0.5, avg: 1.25, max: 1e18 }), (900, Span::of(17.0))];
        let whole = pack(&spans);
        let first_ends = pack(&spans[..1]).len();
        for length in (1..whole.len()).filter(|length| *length != first_ends) {
            assert_eq!(unpacked(&whole[..length]), Err(Damaged), "cut after {length}");
        }
        assert_eq!(unpacked(&[0xff; 64]), Err(Damaged));
        assert_eq!(unpacked(&[0x04, 0x03]), Err(Damaged));
        for seed in 0_u32..2_000 {
            let mut state = seed.wrapping_mul(2_654_435_761) | 1;
            let noise: Vec<u8> = (0..40)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    state.to_le_bytes()[1]
                })
                .collect();
            let _may_be_refused = unpacked(&noise);
        }
    }
}
