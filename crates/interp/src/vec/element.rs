//! Elements of lanes.

use crate::word::Lane;

/// An element of 1, 2, 4 or 8 bytes.
pub trait Element: Copy {
    const BYTES: usize;
    /// Element `i` of a lane.
    fn get(l: &Lane, i: usize) -> Self;
    /// Sets element `i` of a lane.
    fn put(self, l: &mut Lane, i: usize);
}

macro_rules! elements {
    ($($t:ty)*) => {
        $(
            impl Element for $t {
                const BYTES: usize = size_of::<$t>();
                #[inline(always)]
                fn get(l: &Lane, i: usize) -> $t {
                    <$t>::from_le_bytes(std::array::from_fn(|b| l[(i * size_of::<$t>() + b) & 15]))
                }
                #[inline(always)]
                fn put(self, l: &mut Lane, i: usize) {
                    let at = i * size_of::<$t>();
                    l[at..at + size_of::<$t>()].copy_from_slice(&self.to_le_bytes());
                }
            }
        )*
    };
}

elements!(u8 u16 u32 u64 i8 i16 i32 i64);

/// Number of elements in a lane.
pub const fn count<T: Element>() -> usize {
    16 / T::BYTES
}

/// A lane with element `i` of `f(i)`.
#[inline(always)]
pub fn make<T: Element>(mut f: impl FnMut(usize) -> T) -> Lane {
    let mut out = [0; 16];
    for i in 0..count::<T>() {
        f(i).put(&mut out, i);
    }
    out
}

/// Each pair of elements.
#[inline(always)]
pub fn zip<T: Element, R: Element>(a: Lane, b: Lane, f: impl Fn(T, T) -> R) -> Lane {
    make::<R>(|i| f(T::get(&a, i), T::get(&b, i)))
}

/// Element `i` of a whole register.
#[inline(always)]
pub fn element<T: Element>(v: &[Lane; 4], i: usize) -> T {
    T::get(&v[(i / count::<T>()) & 3], i % count::<T>())
}

/// Sets element `i` of a whole register.
#[inline(always)]
pub fn set_element<T: Element>(v: &mut [Lane; 4], i: usize, to: T) {
    to.put(&mut v[(i / count::<T>()) & 3], i % count::<T>());
}

/// A register with element `i` of `f(i)` in each of so many lanes, and zeros behind them.
pub fn whole<T: Element>(lanes: u8, f: impl Fn(usize) -> T) -> [Lane; 4] {
    let mut r = [[0; 16]; 4];
    for i in 0..(lanes as usize).min(4) * count::<T>() {
        set_element(&mut r, i, f(i));
    }
    r
}
