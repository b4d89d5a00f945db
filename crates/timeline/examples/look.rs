//! Lists what is in a trace, and walks a little in it.

use hindsight_timeline::*;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    let t = Timeline::open(path, Options::default())?;
    for p in t.processes()? {
        println!("{p:?}");
        for m in t.modules(p.image)? {
            println!("  {} {:#x} {:?} {:?}", m.path, m.start, m.load, m.unload);
        }
    }
    for h in t.threads()? {
        println!("{h:?}");
    }
    let mut c = t.cursor()?;
    for e in t.events(&Filter::default())?.iter().take(20) {
        c.seek(e.position)?;
        println!("{} {:#x} {:?}", e.position, c.registers()?.rip, e.kind);
    }
    c.seek(t.percent(50.0)?)?;
    let cancel = Cancel::new();
    for _ in 0..5 {
        let a = c.accesses()?;
        let s = c.step(Direction::Backward, Scope::Thread)?;
        println!("{} {:#x} {:x?}", s.position, c.registers()?.rip, a);
    }
    println!("{:?}", c.step_over(Direction::Forward, &cancel)?);
    println!("{:?}", c.step_out(Direction::Forward, &cancel)?);
    println!("{:?}", c.step_out(Direction::Backward, &cancel)?);
    let rsp = c.registers()?.gpr[4];
    println!("{:?}", c.last_write(rsp, 8, &cancel)?);
    println!(
        "{:?}",
        c.run(
            Direction::Forward,
            Scope::All,
            &mut Stops::default(),
            &cancel
        )?
    );
    println!(
        "{:?}",
        c.run(
            Direction::Backward,
            Scope::All,
            &mut Stops::default(),
            &cancel
        )?
    );
    Ok(())
}
