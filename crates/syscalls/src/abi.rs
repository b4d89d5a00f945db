//! Linux on x86-64 as recorded programs see it: numbers of calls, flags, requests and errors, with the names of the kernel's
//! headers. The machine that plays a recording may have others.
//!
//! Source: the kernel's headers. Where they are those of this machine, tests compare.

/// Constants of a type. The headers' own are at the path.
macro_rules! abi {
    ($type:ty, $($path:ident)::+: $($name:ident = $value:literal;)*) => {
        $(
            #[allow(missing_docs, non_upper_case_globals)]
            pub const $name: $type = $value;
        )*
        #[cfg(all(test, target_arch = "x86_64"))]
        const _: () = {
            use $($path)::+ as headers;
            $(assert!($name as i64 as u32 == headers::$name as i64 as u32);)*
        };
    };
}

mod flags;
mod numbers;

pub use flags::*;
pub use numbers::*;
