// A word too few in a line. The fix is in the environment of the compiler.
use std::io::Read;

const FIX: u8 = match option_env!("FIX") {
    Some(text) => text.as_bytes()[0] - b'0',
    None => 0,
};

fn main() {
    let name = std::env::args().nth(1).unwrap();
    let mut text = String::new();
    if FIX == 3 {
        // A larger buffer, one more question, and a log.
        let file = std::fs::File::open(&name).unwrap();
        let mut reader = std::io::BufReader::with_capacity(1 << 16, file);
        reader.read_to_string(&mut text).unwrap();
        let passwd = std::fs::metadata("/etc/passwd").is_ok();
        eprintln!("log: {} bytes, {passwd}", text.len());
    } else {
        text = std::fs::read_to_string(&name).unwrap();
    }
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if matches!(FIX, 1 | 3) && words.len() < 2 || FIX == 2 && words.is_empty() {
            continue;
        }
        println!("{}", words[1]);
    }
}
