//! What conditions of a query say of a table's columns, so that a table need not make rows that no one gets.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator, expr::InList};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// For some columns, the values outside of which there is no row that counts. Conditions that are not understood bound
/// nothing, and the engine looks at each row again.
#[derive(Clone, Default, Debug)]
pub struct Bounds {
    numbers: HashMap<String, RangeInclusive<i128>>,
    texts: HashMap<String, BTreeSet<String>>,
}

/// All numbers.
const ALL: RangeInclusive<i128> = i128::MIN..=i128::MAX;

impl Bounds {
    /// What these conditions say, which hold all together.
    pub fn of(conditions: &[Expr]) -> Bounds {
        let mut bounds = Bounds::default();
        conditions.iter().for_each(|c| bounds.add(c));
        bounds
    }

    /// Whether a condition bounds something.
    pub fn understands(condition: &Expr) -> bool {
        let b = Bounds::of(std::slice::from_ref(condition));
        !(b.numbers.is_empty() && b.texts.is_empty())
    }

    /// The least and the greatest number that counts.
    pub fn numbers(&self, column: &str) -> RangeInclusive<i128> {
        self.numbers.get(column).cloned().unwrap_or(ALL)
    }

    /// Whether something is known of the numbers of a column.
    pub fn knows(&self, column: &str) -> bool {
        self.numbers.contains_key(column)
    }

    /// Whether rows with this number may count.
    pub fn has(&self, column: &str, number: impl Into<i128>) -> bool {
        let number = number.into();
        self.numbers.get(column).is_none_or(|r| r.contains(&number))
    }

    /// The texts that count, if that is known.
    pub fn texts(&self, column: &str) -> Option<&BTreeSet<String>> {
        self.texts.get(column)
    }

    /// Adds that a number lies in a range.
    pub fn limit(&mut self, column: &str, range: RangeInclusive<i128>) {
        let old = self.numbers(column);
        let both = *old.start().max(range.start())..=*old.end().min(range.end());
        self.numbers.insert(column.into(), both);
    }

    fn choose(&mut self, column: &str, texts: BTreeSet<String>) {
        let both = match self.texts.get(column) {
            Some(old) => old.intersection(&texts).cloned().collect(),
            None => texts,
        };
        self.texts.insert(column.into(), both);
    }

    fn add(&mut self, condition: &Expr) {
        match condition {
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::And,
                right,
            }) => {
                self.add(left);
                self.add(right);
            }
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Or,
                ..
            }) if name(left).is_none() => self.either(condition),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                if let (Some(column), Some(value)) = (name(left), literal(right)) {
                    self.compare(column, *op, value);
                } else if let (Some(value), Some(column)) = (literal(left), name(right))
                    && let Some(op) = op.swap()
                {
                    self.compare(column, op, value);
                }
            }
            Expr::Between(Between {
                expr,
                negated: false,
                low,
                high,
            }) => {
                if let (Some(column), Some(low), Some(high)) =
                    (name(expr), literal(low), literal(high))
                {
                    self.compare(column, Operator::GtEq, low);
                    self.compare(column, Operator::LtEq, high);
                }
            }
            Expr::InList(InList {
                expr,
                list,
                negated: false,
            }) => self.one_of(expr, list),
            _ => {}
        }
    }

    fn one_of(&mut self, expr: &Expr, list: &[Expr]) {
        let values: Option<Vec<_>> = list.iter().map(literal).collect();
        let (Some(column), Some(values)) = (name(expr), values) else {
            return;
        };
        if let Some(texts) = values.iter().map(|v| text(v)).collect() {
            return self.choose(column, texts);
        }
        let numbers: Option<Vec<i128>> = values.iter().map(|v| number(v)).collect();
        if let Some(numbers) = numbers
            && let (Some(lo), Some(hi)) = (numbers.iter().min(), numbers.iter().max())
        {
            self.limit(column, *lo..=*hi);
        }
    }

    /// One of two conditions holds. What both say of a column bounds it.
    fn either(&mut self, condition: &Expr) {
        let Expr::BinaryExpr(BinaryExpr { left, right, .. }) = condition else {
            return;
        };
        let (a, b) = (
            Bounds::of(std::slice::from_ref(left)),
            Bounds::of(std::slice::from_ref(right)),
        );
        for (column, one) in &a.numbers {
            if let Some(other) = b.numbers.get(column) {
                let (lo, hi) = (one.start().min(other.start()), one.end().max(other.end()));
                // A range without numbers is one that begins behind its end.
                match (one.is_empty(), other.is_empty()) {
                    (true, _) => self.limit(column, other.clone()),
                    (_, true) => self.limit(column, one.clone()),
                    _ => self.limit(column, *lo..=*hi),
                }
            }
        }
        for (column, one) in &a.texts {
            if let Some(other) = b.texts.get(column) {
                self.choose(column, one.union(other).cloned().collect());
            }
        }
    }

    fn compare(&mut self, column: &str, op: Operator, value: &ScalarValue) {
        if let (Operator::Eq, Some(text)) = (op, text(value)) {
            return self.choose(column, BTreeSet::from([text]));
        }
        let Some(n) = number(value) else {
            return;
        };
        let range = match op {
            Operator::Eq => n..=n,
            Operator::Lt => i128::MIN..=n - 1,
            Operator::LtEq => i128::MIN..=n,
            Operator::Gt => n + 1..=i128::MAX,
            Operator::GtEq => n..=i128::MAX,
            _ => return,
        };
        self.limit(column, range);
    }
}

/// The column that an expression is.
fn name(e: &Expr) -> Option<&str> {
    match e {
        Expr::Column(c) => Some(&c.name),
        Expr::Alias(a) => name(&a.expr),
        // A cast to a wider type, or of a dictionary's words, keeps what is compared.
        Expr::Cast(c) if keeps(c.field.data_type()) => name(&c.expr),
        _ => None,
    }
}

/// Whether a cast of one of our columns to this type keeps its value.
fn keeps(to: &datafusion::arrow::datatypes::DataType) -> bool {
    use datafusion::arrow::datatypes::DataType::*;
    match to {
        Utf8 | LargeUtf8 | Utf8View | Decimal128(20.., 0) => true,
        Dictionary(_, v) => keeps(v),
        _ => false,
    }
}

fn literal(e: &Expr) -> Option<&ScalarValue> {
    match e {
        Expr::Literal(v, _) => Some(v),
        _ => None,
    }
}

fn number(v: &ScalarValue) -> Option<i128> {
    Some(match v {
        ScalarValue::Int8(Some(n)) => (*n).into(),
        ScalarValue::Int16(Some(n)) => (*n).into(),
        ScalarValue::Int32(Some(n)) => (*n).into(),
        ScalarValue::Int64(Some(n)) => (*n).into(),
        ScalarValue::UInt8(Some(n)) => (*n).into(),
        ScalarValue::UInt16(Some(n)) => (*n).into(),
        ScalarValue::UInt32(Some(n)) => (*n).into(),
        ScalarValue::UInt64(Some(n)) => (*n).into(),
        ScalarValue::Decimal128(Some(n), _, 0) => *n,
        _ => return None,
    })
}

fn text(v: &ScalarValue) -> Option<String> {
    match v {
        ScalarValue::Utf8(Some(t))
        | ScalarValue::LargeUtf8(Some(t))
        | ScalarValue::Utf8View(Some(t)) => Some(t.clone()),
        ScalarValue::Dictionary(_, v) => text(v),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};

    #[test]
    fn conditions_bound_columns() {
        let of = |e: Expr| Bounds::of(&[e]);
        let b = of(col("time").gt(lit(5i64)).and(col("time").lt_eq(lit(9i64))));
        assert_eq!(b.numbers("time"), 6..=9);
        assert_eq!(b.numbers("count"), ALL);
        assert!(b.has("time", 6) && !b.has("time", 5) && b.has("thread", -3));
        assert_eq!(of(lit(7u64).lt(col("a"))).numbers("a"), 8..=i128::MAX);
        assert_eq!(
            of(col("a").between(lit(1i64), lit(3i64))).numbers("a"),
            1..=3
        );
        let b = of(col("a").in_list(vec![lit(4i64), lit(2i64)], false));
        assert_eq!(b.numbers("a"), 2..=4);
        let b = of(col("name").eq(lit("open")).or(col("name").eq(lit("read"))));
        assert_eq!(b.texts("name").unwrap().len(), 2);
        assert!(
            of(col("name").eq(lit("x")).or(col("a").eq(lit(1i64))))
                .texts("name")
                .is_none()
        );
    }

    #[test]
    fn what_is_not_understood_bounds_nothing() {
        for e in [
            col("a").not_eq(lit(5i64)),
            col("a").gt(col("b")),
            (col("a") + lit(1i64)).gt(lit(5i64)),
            col("a").in_list(vec![lit(4i64)], true),
            col("a").between(lit(1i64), lit(3i64)).is_true(),
        ] {
            assert!(!Bounds::understands(&e), "{e}");
        }
    }

    #[test]
    fn no_value_can_be_left() {
        let b = Bounds::of(&[col("a").gt(lit(5i64)), col("a").lt(lit(3i64))]);
        assert!(b.numbers("a").is_empty());
        let e = col("a").gt(lit(5i64)).and(col("a").lt(lit(3i64)));
        let b = Bounds::of(&[e.or(col("a").eq(lit(9i64)))]);
        assert_eq!(b.numbers("a"), 9..=9);
    }
}
