//! Names as their author wrote them.

/// The readable form of a symbol's name. Rust and C++ names are demangled; others stay as they are.
///
/// ```
/// assert_eq!(hindsight_symbols::demangle("_ZN4shop5twiceEi"), "shop::twice(int)");
/// assert_eq!(hindsight_symbols::demangle("main"), "main");
/// ```
pub fn demangle(name: &str) -> String {
    if let Ok(d) = rustc_demangle::try_demangle(name) {
        return format!("{d:#}");
    }
    // Only names of this form can be C++. The parser would take many others for a type.
    if name.starts_with("_Z")
        && let Ok(s) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = s.demangle()
    {
        return text;
    }
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn rust_cpp_and_c() {
        assert_eq!(
            demangle("_ZN4core3ptr13drop_in_place17h0123456789abcdefE"),
            "core::ptr::drop_in_place"
        );
        assert_eq!(
            demangle("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)"
        );
        assert_eq!(demangle("memcpy"), "memcpy");
        assert_eq!(demangle("_Z"), "_Z");
    }
}
