//! Which recordings the conditions of a query leave, and what they say of each of these.

use crate::bounds::Bounds;
use crate::column::RECORDING;
use crate::values::asks_recordings;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use std::sync::Arc;

/// Whether it helps a table to know a condition.
pub fn helps(condition: &Expr) -> bool {
    Bounds::understands(condition) || says_which(condition)
}

/// Whether a condition is about recordings, and can be told for each of them.
fn says_which(condition: &Expr) -> bool {
    let inner = |e: &Expr| {
        matches!(
            e,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
        )
    };
    let has = |of: &dyn Fn(&Expr) -> bool| condition.exists(|e| Ok(of(e))).unwrap_or(false);
    has(&is_recording) && !has(&inner) && !condition.is_volatile()
}

fn is_recording(e: &Expr) -> bool {
    matches!(e, Expr::Column(c) if c.name == RECORDING.name)
}

/// Tells for each recording what conditions say of its rows.
pub struct Chooser {
    /// Conditions that need no recording come first: they may leave one out before it is opened.
    conditions: Vec<Expr>,
    simplifier: ExprSimplifier,
}

impl Chooser {
    /// For a table with this schema.
    pub fn new(conditions: &[Expr], schema: &SchemaRef) -> Result<Chooser> {
        let mut plain = Vec::new();
        for c in conditions {
            plain.push(
                c.clone()
                    .transform(|e| {
                        Ok(match e {
                            Expr::Column(c) if c.relation.is_some() => {
                                Transformed::yes(Expr::Column(Column::new_unqualified(c.name)))
                            }
                            other => Transformed::no(other),
                        })
                    })?
                    .data,
            );
        }
        plain.sort_by_key(asks_recordings);
        let schema = DFSchema::try_from(Arc::clone(schema))?;
        let context = SimplifyContext::builder().with_schema(Arc::new(schema));
        Ok(Chooser {
            conditions: plain,
            simplifier: ExprSimplifier::new(context.build()),
        })
    }

    /// What has to hold for rows of a recording. `None`: it has none that count.
    pub fn of(&self, name: &str) -> Option<Vec<Expr>> {
        let mut all = Vec::new();
        for c in &self.conditions {
            if !says_which(c) {
                all.push(c.clone());
                continue;
            }
            let said = c.clone().transform(|e| {
                Ok(match is_recording(&e) {
                    true => Transformed::yes(Expr::Literal(word(name), None)),
                    false => Transformed::no(e),
                })
            });
            // The engine looks at each row again. So what cannot be told yet costs time only.
            let Ok(told) = said.and_then(|s| self.simplifier.simplify(s.data)) else {
                continue;
            };
            match told {
                Expr::Literal(ScalarValue::Boolean(Some(true)), _) => {}
                Expr::Literal(ScalarValue::Boolean(_) | ScalarValue::Null, _) => return None,
                other => all.push(other),
            }
        }
        Some(all)
    }
}

/// A word, as columns have it.
fn word(text: &str) -> ScalarValue {
    let text = ScalarValue::Utf8(Some(text.into()));
    ScalarValue::Dictionary(Box::new(DataType::Int32), Box::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::{TIME, table_schema};
    use datafusion::prelude::{col, lit};

    fn of(condition: Expr, name: &str) -> Option<Vec<Expr>> {
        let conditions = [condition.clone()];
        assert!(helps(&condition), "{condition}");
        let chooser = Chooser::new(&conditions, &table_schema(&[TIME])).unwrap();
        chooser.of(name)
    }

    #[test]
    fn conditions_leave_some_recordings() {
        let a = || col("recording");
        for (condition, left) in [
            (a().eq(lit("a")), true),
            (a().eq(lit("b")), false),
            (lit("a").eq(a()), true),
            (a().not_eq(lit("a")), false),
            (a().in_list(vec![lit("b"), lit("a")], false), true),
            (a().in_list(vec![lit("b"), lit("c")], false), false),
            (a().in_list(vec![lit("b"), lit("c")], true), true),
            (a().like(lit("a%")), true),
            (a().like(lit("%b")), false),
            (a().eq(lit("b")).or(a().eq(lit("c"))), false),
            (a().eq(lit("b")).and(col("time").gt(lit(5i64))), false),
            (a().is_null(), false),
        ] {
            let shown = condition.to_string();
            assert_eq!(
                of(condition, "a").map(|c| c.len()),
                left.then_some(0),
                "{shown}"
            );
        }
    }

    #[test]
    fn each_recording_has_its_own_bounds() {
        let of_one = |name, from: i64| {
            col("t.recording")
                .eq(lit(name))
                .and(col("t.time").gt(lit(from)))
        };
        let both = of_one("a", 5).or(of_one("b", 9));
        for (name, from) in [("a", 6), ("b", 10)] {
            let left = of(both.clone(), name).unwrap();
            assert_eq!(*Bounds::of(&left).numbers("time").start(), from, "{left:?}");
        }
        assert!(of(both, "c").is_none());
    }

    #[test]
    fn what_is_not_about_recordings_says_nothing_of_them() {
        assert!(!helps(&col("name").like(lit("a%"))));
        assert!(helps(&col("time").eq(lit(1i64))));
        let time = col("time").eq(lit(1i64));
        assert_eq!(of(time.clone(), "a"), Some(vec![time]));
    }
}
