//! `hindsight-sql`: the part of `hindsight` that answers questions in SQL. `hindsight sql` runs it.

fn main() {
    std::process::exit(hindsight_sql::run());
}
