//! Which threads run, for clients that do not say it with each packet.

use crate::common::{expect, gdb, record};
use crate::packets::{said, server};
use hindsight_lab::Scene;
use std::net::TcpStream;
use std::time::Duration;

/// Two threads call `work`. The first thread never does.
const TWO: &str = r#"
#include <pthread.h>
int total;
int work(int n) { total += n; return n; }
void *run(void *p) { work((long) p); return 0; }
int main(void) {
    pthread_t t;
    for (long i = 1; i <= 2; i++) { pthread_create(&t, 0, run, (void *) i); pthread_join(t, 0); }
    return 0;
}"#;

#[test]
fn a_packet_without_a_thread_is_about_all() {
    let s = Scene::new();
    let trace = record(&s, TWO, &["-no-pie"]);
    let symbols = s.run(s.command("nm").arg(s.path("program"))).text();
    let of = |name: &str| {
        let line = symbols.lines().find(|l| l.ends_with(name)).expect(&symbols);
        u64::from_str_radix(&line[..16], 16).unwrap()
    };
    let (work, total) = (of(" T work"), of(" B total"));
    // The client speaks of processes, as gdb and lldb do, or it does not.
    for features in ["multiprocess+;swbreak+", "swbreak+"] {
        let (_server, port) = server(&s, &trace);
        let mut c = TcpStream::connect(("127.0.0.1", port)).unwrap();
        c.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut say = |packet: &str| said(&mut c, packet);
        let thread = |stop: &str| {
            let rest = stop.split("thread:").nth(1).expect(stop);
            rest[..rest.find(';').unwrap()].to_string()
        };
        assert_eq!(say("QStartNoAckMode"), "OK");
        say(&format!("qSupported:{features}"));
        let main = thread(&say("?"));
        assert_eq!(say(&format!("Z0,{work:x},1")), "OK");
        let first = say("c");
        assert!(first.contains("swbreak"), "{first}");
        // The client was told of a stop in this thread. That is not the same as choosing the thread.
        let second = say("c");
        assert!(second.contains("swbreak"), "{second}");
        assert!(thread(&first) != thread(&second) && thread(&second) != main);
        // A step is one of the thread that stopped, or of the chosen one.
        assert_eq!(thread(&say("s")), thread(&second));
        assert_eq!(thread(&say("bs")), thread(&second));
        assert_eq!(thread(&say("bc")), thread(&first));
        assert_eq!(thread(&say("C05")), thread(&second));
        assert_eq!(say(&format!("Hg{main}")), "OK");
        assert_eq!(thread(&say("S05")), main);
        // A named thread runs alone, forwards and backwards, whatever the client was told.
        assert_eq!(say(&format!("Hc{main}")), "OK");
        let begin = say("bc");
        assert!(begin.contains("replaylog:begin"), "{begin}");
        assert_eq!(thread(&say("s")), main);
        assert!(say("c").contains("replaylog:end"));
        assert!(say("bc").contains("replaylog:begin"));
        assert!(say(&format!("vCont;c:{main}")).contains("replaylog:end"));
        assert!(say("bc").contains("replaylog:begin"));
        // All threads again, in each way to say that.
        let all = match main.split_once('.') {
            Some((process, _)) => format!("Hc{process}.-1"),
            None => "Hc-1".to_string(),
        };
        for all in [&all, "Hc0"] {
            assert_eq!(say(all), "OK");
            assert_eq!(thread(&say("c")), thread(&first));
            assert!(say("bc").contains("replaylog:begin"));
        }
        // Stops for memory work in the same way. The program must not go on elsewhere.
        assert_eq!(say(&format!("z0,{work:x},1")), "OK");
        assert_eq!(say(&format!("Z2,{total:x},4")), "OK");
        assert_eq!(thread(&say("c")), thread(&first));
        assert_eq!(thread(&say("c")), thread(&second));
        assert!(say("c401000").starts_with('E'));
    }
}

#[test]
fn gdb_without_vcont_runs_all_threads() {
    let s = Scene::new();
    let trace = record(&s, TWO, &[]);
    let out = gdb(
        &s,
        &trace,
        "set remote verbose-resume-packet off\nbreak work\ncontinue\nnext\nfinish\ncontinue\nstepi\nreverse-stepi\n\
         reverse-continue\nset scheduler-locking on\ncontinue\nset scheduler-locking off\ncontinue\n",
    );
    expect(
        &out,
        &[
            "work (n=1)",
            "Run till exit",
            "work (n=2)",
            "work (n=1)",
            "No more reverse-execution history",
        ],
    );
}
