//! What a recording says of the machine on which it was made.

use hindsight_isa::approximate::DIFFERENCES;
use hindsight_isa::left_open::{DotProduct, DoubleShift};
use hindsight_isa::xsave::Layout;
use hindsight_isa::{Approximations, Finer, LeftOpen};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// The machine on which the recording was made.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Always `x86_64`.
    pub arch: String,
    /// Always `little`.
    pub byte_order: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The processor's own name.
    pub processor: String,
    /// Bytes of a page.
    pub page_size: u32,
    /// How its processor lays out what `xsave` saves. `None`: it has no such instruction, or the recording does not say it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "possible")]
    pub xsave: Option<Saves>,
    /// What its processor gives for approximations of reciprocals. `None`: tables do not say it, or the recording does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approximations: Option<Guesses>,
    /// The same for the finer approximations of AVX-512.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finer: Option<Lines>,
    /// What it does where manuals leave results open.
    #[serde(skip_serializing_if = "Rules::say_nothing")]
    pub left_open: Rules,
}

/// What a processor does where manuals leave results open: the names of rules. `None`: it follows none that had a name, or the recording
/// does not say it. A name may be newer than this program.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Of `shld` and `shrd` of 16 bits by more than 16 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub double_shift: Option<String>,
    /// Of `dpps` and `dppd` with several NaNs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dot_product: Option<String>,
}

impl Rules {
    fn say_nothing(&self) -> bool {
        *self == Rules::default()
    }

    /// The rules that are known here.
    pub fn known(&self) -> LeftOpen {
        LeftOpen {
            double_shift: self.double_shift.as_deref().and_then(DoubleShift::named),
            dot_product: self.dot_product.as_deref().and_then(DotProduct::parse),
        }
    }
}

impl From<LeftOpen> for Rules {
    fn from(known: LeftOpen) -> Rules {
        Rules {
            double_shift: known.double_shift.map(|r| r.name().to_string()),
            dot_product: known.dot_product.map(|r| r.to_string()),
        }
    }
}

/// What a processor gives for the finer approximations of AVX-512. It is written as numbers, between which are blanks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lines(pub Arc<Finer>);

impl TryFrom<String> for Lines {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Lines, &'static str> {
        let known = Finer::parse(&text).ok_or("no processor approximates like that")?;
        Ok(Lines(Arc::new(known)))
    }
}

impl From<Lines> for String {
    fn from(lines: Lines) -> String {
        lines.0.to_string()
    }
}

/// What a processor gives for approximations of reciprocals. It is written as a letter for each table's entry: `m` for what
/// is exact, the others around it for what is more or less.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Guesses(pub Arc<Approximations>);

/// The letter of an entry that is exact.
const EXACT: i8 = b'm' as i8;

impl TryFrom<String> for Guesses {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Guesses, &'static str> {
        const WRONG: &str = "no processor approximates like that";
        let letters: &[u8; DIFFERENCES] = text.as_bytes().try_into().map_err(|_| WRONG)?;
        if !letters.iter().all(u8::is_ascii_lowercase) {
            return Err(WRONG);
        }
        let known = Approximations::of(&letters.map(|l| l as i8 - EXACT));
        known.map(|k| Guesses(Arc::new(k))).ok_or(WRONG)
    }
}

impl From<Guesses> for String {
    fn from(guesses: Guesses) -> String {
        let differences = guesses.0.differences().unwrap_or([0; DIFFERENCES]);
        let letters = differences.map(|d| (d + EXACT) as u8 as char);
        letters.iter().collect()
    }
}

impl Guesses {
    /// What the processor at hand gives. `None`: no letters say it.
    pub fn here() -> Option<Guesses> {
        let here = Approximations::here()?;
        let letters = -12..=13;
        let known = here.differences()?.iter().all(|d| letters.contains(d));
        known.then(|| Guesses(Arc::new(here)))
    }
}

/// The area that `xsave` writes, in standard form. Processors have different ones.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Saves {
    /// The components that programs see: a bit for each, as in XCR0.
    pub components: u64,
    /// Offset of the upper halves of ymm0 to ymm15. 0 here and below: the processor does not have it.
    pub avx: u32,
    /// Offset of the mask registers.
    pub masks: u32,
    /// Offset of the upper halves of zmm0 to zmm15.
    pub upper: u32,
    /// Offset of zmm16 to zmm31.
    pub high: u32,
}

/// Refuses a layout that no processor has.
fn possible<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Saves>, D::Error> {
    let saves = Option::<Saves>::deserialize(from)?;
    match saves.is_some_and(|s| s.layout().is_none()) {
        true => Err(serde::de::Error::custom(
            "no processor saves registers like that",
        )),
        false => Ok(saves),
    }
}

impl Saves {
    /// The layout that this says. `None`: no processor has such a one.
    pub fn layout(&self) -> Option<Layout> {
        let offsets = [self.avx, self.masks, self.upper, self.high];
        Layout::of(self.components, offsets.map(|at| at as usize))
    }
}

impl From<Layout> for Saves {
    fn from(layout: Layout) -> Saves {
        let [avx, masks, upper, high] = layout.offsets().map(|at| at as u32);
        Saves {
            components: layout.mask,
            avx,
            masks,
            upper,
            high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approximations_are_letters() {
        let exact = "m".repeat(DIFFERENCES);
        let known = Guesses::try_from(exact.clone()).unwrap();
        assert_eq!(String::from(known), exact);
        let other = exact.replacen('m', "n", 7);
        let known = Guesses::try_from(other.clone()).unwrap();
        assert_eq!(String::from(known), other);
        // Too short, no letter, and less than any processor gives.
        for wrong in [
            &exact[1..],
            &exact.replacen('m', "M", 1),
            &"a".repeat(DIFFERENCES),
        ] {
            assert!(Guesses::try_from(wrong.to_string()).is_err());
        }
    }

    /// A rule that is newer than this program is unknown, and the recording can be read.
    #[test]
    fn rules_have_names() {
        let read = |json: &str| serde_json::from_str::<Machine>(json).unwrap().left_open;
        let text = r#"{"left_open":{"double_shift":"first","dot_product":"2310"}}"#;
        let known = read(text).known();
        assert_eq!(known.double_shift, Some(DoubleShift::First));
        assert_eq!(Rules::from(known), read(text));
        let newer = r#"{"left_open":{"double_shift":"third","else":"x"}}"#;
        assert_eq!(read(newer).known(), LeftOpen::default());
        assert_eq!(read("{}"), Rules::default());
    }

    #[test]
    fn lines_are_numbers() {
        let table = "16 65536".to_string() + &" 4096 0".repeat(64);
        let all = [&table[..]; 3].join(" ");
        let known = Lines::try_from(all.clone()).unwrap();
        assert_eq!(String::from(known), all);
        assert!(Lines::try_from(all + " 7").is_err());
        assert!(Lines::try_from(table).is_err());
    }

    /// So a recording made here says them.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_processor_can_be_told() {
        // An emulated processor may compute them exactly.
        let Some(here) = Guesses::here() else {
            return;
        };
        let again = Guesses::try_from(String::from(here.clone())).unwrap();
        assert_eq!(again, here);
    }
}
